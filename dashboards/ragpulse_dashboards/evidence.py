"""The contexts of an answer with the passages that support its sentences.

Reads the evidence for each sentence that the `groundedness` evaluator leaves in its score;
without it nothing is marked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["ContextView", "Piece", "context_views", "find_sentences"]


class Piece(NamedTuple):
    """A stretch of text; pieces in order are the whole text, unchanged."""

    text: str
    sentences: tuple[int, ...]
    """Numbers of the sentences whose best evidence it is."""


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """One retrieved context with its evidence marked."""

    row: Mapping[str, Any]
    pieces: Sequence[Piece]
    index: int | None
    """Its index among the contexts that evaluators see; None for a superseded one and for one without text."""
    used: bool | None
    """Whether it supports any sentence; None when nothing was checked."""
    closest: bool
    """Whether it is the closest to an unsupported sentence."""

    @property
    def relevant(self) -> bool:
        """Whether it shows where the answer came from; the others are folded."""
        return self.used is not False or self.closest


def find_sentences(scores: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the sentences of the first score that has evidence, groundedness first; empty when there is none."""
    for score in sorted(scores, key=lambda score: score.get("evaluator") != "groundedness"):
        parts = score.get("parts")
        for part in parts.values() if isinstance(parts, Mapping) else ():
            if _is_evidence(part):
                return [_sentence(item) for item in part]
    return []


def _sentence(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence with the index of its best context, which evaluators count from 1."""
    rank = item.get("rank")
    index = rank - 1 if isinstance(rank, int) else None
    return {**item, "context": index, "claim": item.get("claim") is not False}


def _is_evidence(part: Any) -> bool:
    return (
        isinstance(part, list)
        and bool(part)
        and all(
            isinstance(item, Mapping) and isinstance(item.get("text"), str) and "supported" in item for item in part
        )
    )


def context_views(contexts: Sequence[Mapping[str, Any]], sentences: Sequence[Mapping[str, Any]]) -> list[ContextView]:
    """Cut each context where evidence begins and ends, with the sentences that each piece supports."""
    views, index = [], 0
    for row in contexts:
        seen = bool(row.get("text")) and not row.get("superseded")
        matches = [(number, item) for number, item in enumerate(sentences) if seen and item.get("context") == index]
        supported = [bool(item.get("supported")) for _, item in matches if item.get("claim") is not False]
        views.append(
            ContextView(
                row=row,
                pieces=_pieces(row.get("text") or "", matches),
                index=index if seen else None,
                used=any(supported) if sentences else None,
                closest=not all(supported),
            )
        )
        index += seen
    return views


def _pieces(text: str, sentences: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Piece]:
    spans = []
    for number, sentence in sentences:
        start, end = sentence.get("evidence_start"), sentence.get("evidence_end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            spans.append((start, end, number))
    cuts = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    return [
        Piece(text[left:right], tuple(number for start, end, number in spans if start <= left and right <= end))
        for left, right in pairwise(cuts)
    ]
