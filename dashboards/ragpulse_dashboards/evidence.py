"""The contexts of an answer with the passages that its sentences rest on.

Reads the per-sentence evidence that the `groundedness` evaluator leaves in its score;
without it nothing is marked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["ContextView", "Piece", "context_views", "find_sentences"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stretch of text; pieces in order are the whole text, unchanged."""

    text: str
    sentences: tuple[int, ...] = ()
    """Numbers of the sentences that it is the best evidence for."""


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """One retrieved context with its evidence marked."""

    row: Mapping[str, Any]
    pieces: Sequence[Piece]
    index: int | None
    """Its place among the contexts that evaluators see, from 0; None for one without text and one superseded."""
    used: bool | None
    """Whether any supported sentence rests on it; None when nothing was checked."""
    closest: bool = False
    """Whether it is the closest to a sentence that nothing supports."""

    @property
    def shown(self) -> bool:
        """Whether a person who asks where the answer came from needs to see it."""
        return self.used is not False or self.closest


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


def context_views(contexts: Sequence[Mapping[str, Any]], sentences: Sequence[Mapping[str, Any]]) -> list[ContextView]:
    """Each context cut where evidence begins and ends, with the sentences each piece supports."""
    views, index = [], 0
    for row in contexts:
        seen = bool(row.get("text")) and not row.get("superseded")
        mine = [(number, one) for number, one in enumerate(sentences) if seen and one.get("context") == index]
        claims = [bool(one.get("supported")) for _, one in mine if one.get("claim") is not False]
        views.append(
            ContextView(
                row=row,
                pieces=_marked(str(row.get("text") or ""), mine),
                index=index if seen else None,
                used=any(claims) if sentences else None,
                closest=not all(claims),
            )
        )
        index += seen
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
