"""`groundedness_model`: do the contexts support the response? Read by a local model of the user's choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from threading import Lock
from typing import Annotated, Any

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, excerpt
from ragpulse_evaluators.evaluator import CostClass, Evaluator, Scale
from ragpulse_evaluators.grounding.groundedness import (
    NOTHING_CLAIMED,
    SentenceEvidence,
    assess,
    readable_contexts,
    readable_response,
)
from ragpulse_evaluators.grounding.markup import read_markup
from ragpulse_evaluators.grounding.refusal import find_refusal
from ragpulse_evaluators.local.folder import open_model
from ragpulse_evaluators.local.reading import WINDOW_RULE, Reader, ReadMark
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

_SHOWN = 3


class GroundednessModel(Evaluator):
    """Do the contexts support what the response claims? Read by a local model; no judge, nothing leaves the machine.

    `model` is a folder or an id that `ragpulse models add` fetched: a token tagger (LettuceDetect, TinyLettuce) or a
    classifier of pairs (NLI, FactCG, cross-encoders with one logit), as ONNX. Sentences, evidence and `parts` are
    those of `groundedness`; the model gives the probability of each sentence, and `parts["spans"]` is what it marks.
    `score` is the mean over the claims, `parts["weakest"]` the lowest. It passes where that reaches `threshold`.
    In the collector it uses `max_cpu_share` CPU seconds a second; `threads` make one answer faster.
    """

    name = "groundedness_model"
    needs = frozenset({"response", "contexts"})
    scale = Scale()
    cost_class: CostClass = "embedding"

    def __init__(
        self,
        *,
        model: str,
        threshold: float = 0.5,
        threads: Annotated[int, Field(ge=1)] = 1,
        max_cpu_share: Annotated[float, Field(gt=0)] = 0.5,
    ) -> None:
        self.folder = folder = open_model(model)
        super().__init__(
            threshold=threshold,
            model=folder.digest,
            supported=folder.supported,
            template=folder.template,
            limit=folder.limit,
            windows=WINDOW_RULE,
        )
        self.max_cpu_share, self.own_memory_mb = max_cpu_share, 1024 + 4 * (sum(folder.files.values()) >> 20)
        self._threads, self._lock, self._reader = threads, Lock(), list[Reader]()

    async def run(self, case: Case) -> Outcome:
        """Score one case in a thread; the first one loads the model."""
        return await asyncio.to_thread(self._read, case)

    def _read(self, case: Case) -> Outcome:
        response, contexts = readable_response(case), readable_contexts(case)
        if refusal := find_refusal(response):
            raise MissingField(f"a claim: the response declines to answer ({refusal!r})")
        texts, ids = [c.text for c in contexts], [name for c in contexts for name in c.names]
        found, text = assess(response, texts, ids), read_markup(response, ids).text
        claims = [sentence for sentence in found.sentences if sentence.claim]
        places = [(sentence.start, sentence.end) for sentence in claims]
        read = self._loaded().read(case.query or "", texts, text, places)
        marks = {place: own for place, own in zip(places, read, strict=True) if own}
        if not marks:
            raise MissingField("a claim: the response has no sentence that claims something")
        sentences = [self._judged(s, marks.get((s.start, s.end), ()), text) for s in found.sentences]
        spans = [span for own in marks.values() for span in self._unsupported(own, text)]
        return self._outcome(sentences, spans, [asdict(code) | {"unknown": list(code.unknown)} for code in found.code])

    def _loaded(self) -> Reader:
        with self._lock:
            if not self._reader:
                self._reader.append(Reader(self.folder, threads=self._threads))
            return self._reader[0]

    def _unsupported(self, marks: Sequence[ReadMark], text: str) -> list[ReadMark]:
        """Return the marks below the threshold; those between which only blanks stand are one.

        `text` is the response with structure, code and citation marks blank: what the model read.
        """
        spans: list[ReadMark] = []
        for mark in marks:
            if mark.supported >= (self.threshold or 0.0):
                continue
            if spans and not text[spans[-1].end : mark.start].strip():
                first = spans.pop()
                mark = ReadMark(first.start, mark.end, min(first.supported, mark.supported))
            spans.append(mark)
        return spans

    def _judged(self, sentence: SentenceEvidence, marks: Sequence[ReadMark], text: str) -> SentenceEvidence:
        """Put the model's verdict in place of that of the words; what it reads nothing of claims nothing."""
        if not marks:
            return replace(sentence, claim=False, score=1.0, supported=True, reasons=(NOTHING_CLAIMED,))
        spans = self._unsupported(marks, text)
        reasons = tuple(f"not supported: “{excerpt(text[s.start : s.end])}”" for s in spans)
        score = round(min(mark.supported for mark in marks), 4)
        return replace(sentence, score=score, supported=not spans, reasons=reasons)

    def _outcome(
        self, sentences: Sequence[SentenceEvidence], spans: Sequence[ReadMark], code: list[dict[str, Any]]
    ) -> Outcome:
        claims = sorted((s for s in sentences if s.claim), key=lambda s: s.score)
        supported = sum(s.supported is True for s in claims)
        reasons = [reason for s in claims for reason in s.reasons][:_SHOWN]
        summary = f"{supported} of {len(claims)} sentences supported, by {self.folder.name}"
        parts = {
            "weakest": claims[0].score,
            "supported": supported,
            "unclear": 0,
            "claims": len(claims),
            "sentences": [_part(sentence) for sentence in sentences],
            "spans": [{"start": s.start, "end": s.end, "score": round(s.supported, 4)} for s in spans],
            **({"code": code} if code else {}),
        }
        return Outcome(
            score=round(sum(s.score for s in claims) / len(claims), 4),
            passing=not spans,
            label="ungrounded" if spans else "grounded",
            explanation=". ".join([summary, *reasons]) + ".",
            parts=parts,
        )


def _part(sentence: SentenceEvidence) -> dict[str, Any]:
    """JSON without the evidence's text, as of `groundedness`."""
    fields = asdict(sentence) | {"reasons": list(sentence.reasons)}
    del fields["evidence"]
    return fields


ENTRIES: tuple[Entry, ...] = (
    Entry.of(
        GroundednessModel,
        source="this project; the model is the user's: LettuceDetect (2025), FactCG (2025)",
        description="Probability that the contexts support each claim, read by a local model that you choose.",
        options='model="KRLabsOrg/tinylettuce-ettin-17m-en"',
        packages=("onnxruntime", "tokenizers"),
        install="ragpulse[local]",
        own_process=True,
    ),
)
