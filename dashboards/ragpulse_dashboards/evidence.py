"""Each sentence of an answer tied to the passage that best supports it.

Reads the per-sentence evidence that the `groundedness` evaluator leaves in its score;
without it the answer is plain text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["ContextView", "Piece", "answer_pieces", "context_views", "find_sentences"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stretch of text; pieces in order are the whole text, unchanged."""

    text: str
    sentences: tuple[int, ...] = ()
    """Numbers of the sentences it is (in an answer: one) or supports (in a context)."""
    supported: bool | None = None
    score: float | None = None
    context: int | None = None
    """Index of the context with the best evidence."""
    reasons: str = ""


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """One retrieved context with its evidence marked."""

    row: Mapping[str, Any]
    pieces: Sequence[Piece]
    used: bool | None
    """Whether any supported sentence rests on it; None when nothing was checked."""


def find_sentences(scores: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest per-sentence evidence among the scores, groundedness first; empty when there is none."""
    ranked = sorted(scores, key=lambda score: score.get("evaluator") != "groundedness")
    for score in ranked:
        for holder in (score.get("parts"), score.get("details")):
            for candidate in [holder, *(holder.values() if isinstance(holder, Mapping) else ())]:
                if _is_evidence(candidate):
                    return [_with_context(one) for one in candidate]
    return []


def _with_context(sentence: Mapping[str, Any]) -> dict[str, Any]:
    """The index of the best context from either spelling: `context` from 0 or `rank` from 1."""
    context, rank = sentence.get("context"), sentence.get("rank")
    index = context if isinstance(context, int) else rank - 1 if isinstance(rank, int) else None
    return {**sentence, "context": index, "claim": sentence.get("claim") is not False}


def _is_evidence(candidate: Any) -> bool:
    return (
        isinstance(candidate, list)
        and bool(candidate)
        and all(
            isinstance(item, Mapping) and isinstance(item.get("text"), str) and "supported" in item
            for item in candidate
        )
    )


def answer_pieces(response: str, sentences: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """The answer cut at its sentences; one that cannot be found in the answer is passed over."""
    pieces, position = [], 0
    for number, sentence in enumerate(sentences):
        span = _locate(response, sentence, position)
        if span is None:
            continue
        if span[0] > position:
            pieces.append(Piece(text=response[position : span[0]]))
        pieces.append(_sentence_piece(response[span[0] : span[1]], number, sentence))
        position = span[1]
    return [*pieces, Piece(text=response[position:])] if position < len(response) else pieces


def _sentence_piece(text: str, number: int, sentence: Mapping[str, Any]) -> Piece:
    """A sentence that claims nothing ("Yes.") is plain text: it can be neither supported nor not."""
    if sentence.get("claim") is False:
        return Piece(text=text)
    return Piece(
        text=text,
        sentences=(number,),
        supported=bool(sentence.get("supported")),
        score=_float(sentence.get("score")),
        context=sentence.get("context"),
        reasons=_words(sentence.get("reasons")),
    )


def _locate(response: str, sentence: Mapping[str, Any], position: int) -> tuple[int, int] | None:
    start, end, text = sentence.get("start"), sentence.get("end"), str(sentence["text"])
    if isinstance(start, int) and isinstance(end, int) and position <= start < end <= len(response):
        return start, end
    found = response.find(text, position) if text else -1
    return None if found < 0 else (found, found + len(text))


def context_views(contexts: Sequence[Mapping[str, Any]], sentences: Sequence[Mapping[str, Any]]) -> list[ContextView]:
    """Each context cut where evidence begins and ends, with the sentences each piece supports."""
    views = []
    for index, row in enumerate(contexts):
        mine = [(number, one) for number, one in enumerate(sentences) if one.get("context") == index]
        used = any(one.get("supported") for _, one in mine) if sentences else None
        views.append(ContextView(row=row, pieces=_marked(str(row.get("text") or ""), mine), used=used))
    return views


def _marked(text: str, sentences: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Piece]:
    spans = []
    for number, one in sentences:
        start, end = one.get("evidence_start"), one.get("evidence_end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            spans.append((start, end, number))
    cuts = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    pieces = []
    for left, right in pairwise(cuts):
        numbers = tuple(number for start, end, number in spans if start <= left and right <= end)
        pieces.append(Piece(text=text[left:right], sentences=numbers))
    return pieces


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _words(value: Any) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value or "")
