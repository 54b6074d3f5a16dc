"""`groundedness_model`: do the contexts support the response? Read by a local model of the user's choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from threading import Lock
from typing import Annotated

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, excerpt
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.grounding.groundedness import (
    NO_CLAIM,
    NOTHING_CLAIMED,
    SentenceEvidence,
    assess_case,
    outcome_of,
)
from ragpulse_evaluators.local.folder import open_model
from ragpulse_evaluators.local.reading import WINDOW_RULE, Reader, ReadMark
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome


class GroundednessModel(Evaluator):
    """Do the contexts support what the response claims? Read by a local model; no judge, nothing leaves the machine.

    `model` is a folder or an id that `ragpulse models add` fetched: a token tagger (LettuceDetect, TinyLettuce) or a
    classifier of pairs (NLI, FactCG, cross-encoders with one logit), as ONNX. Sentences, evidence and `parts` are
    those of `groundedness`; the model gives the probability of each sentence, and `parts["spans"]` is what it marks.
    `score` is the mean over the claims, `parts["weakest"]` the lowest. It passes where that reaches `threshold`.
    It reads in one thread, and in the collector `max_cpu_share` CPU seconds a second.
    """

    name = "groundedness_model"
    needs = frozenset({"response", "contexts"})
    cost_class = "embedding"

    def __init__(
        self,
        *,
        model: str,
        threshold: float = 0.5,
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
        self._lock, self._reader = Lock(), list[Reader]()

    async def run(self, case: Case) -> Outcome:
        """Score one case in a thread; the first one loads the model."""
        return await asyncio.to_thread(self._read, case)

    def _read(self, case: Case) -> Outcome:
        found, contexts = assess_case(case), [context.text for context in case.contexts or ()]
        places = [(sentence.start, sentence.end) for sentence in found.sentences if sentence.claim]
        marks = self._loaded().read(case.query or "", contexts, found.read, places)
        of_place = dict(zip(places, marks, strict=True))
        sentences = tuple(self._judged(s, of_place.get((s.start, s.end), ()), found.read) for s in found.sentences)
        scores = [sentence.score for sentence in sentences if sentence.claim]
        if not scores:
            raise MissingField(NO_CLAIM)
        spans = [span for own in marks for span in self._unsupported(own, found.read)]
        read = replace(found, score=round(fmean(scores), 4), weakest=min(scores), sentences=sentences)
        outcome = outcome_of(read, not spans, f" Read by {self.folder.name}.")
        shown = [{"start": s.start, "end": s.end, "score": round(s.supported, 4)} for s in spans]
        return replace(outcome, parts={**outcome.parts, "spans": shown})

    def _loaded(self) -> Reader:
        with self._lock:
            if not self._reader:
                self._reader.append(Reader(self.folder))
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


ENTRIES = (
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
