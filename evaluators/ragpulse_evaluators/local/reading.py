"""How a model reads a long answer and long contexts: in windows that fit; for each claim the best window counts.

Contexts are read in the order of their texts, not of their ranks: the order of contexts changes no score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.grounding.text import split_sentences, words
from ragpulse_evaluators.local.folder import ModelFolder, known
from ragpulse_evaluators.local.graph import Graph

WINDOW_RULE = "even runs of whole sentences, best of the 8 with most words in common"
"""Part of the version."""
_MOST_WINDOWS = 8
_MARGIN = 4
"""Tokens that a shorter part of the response may take more within a template than counted alone."""
_SLOT = re.compile(r"\{(context|question|claim|count)\}")


class TextPiece(NamedTuple):
    """A piece of a text; `source` is the number of the text."""

    source: int
    start: int
    end: int


class ReadMark(NamedTuple):
    """The probability that the contexts support a piece of the response: a token, or a whole claim."""

    start: int
    end: int
    supported: float


Window = Sequence[TextPiece]
"""A run of pieces that is read at once."""


def windows(pieces: Window, texts: Sequence[str], size: Callable[[Window], int], limit: int) -> list[Window]:
    """Cut pieces into even runs whose size is within the limit: every character is in one of them.

    Raises `ConfigurationError` where not even one character fits.
    """
    used = size(pieces)
    if used <= limit:
        return [pieces]
    if len(pieces) > 1:
        fixed = size(())
        count = max(2, math.ceil((used - fixed) / max(1, limit - fixed)))
        step = math.ceil(len(pieces) / min(count, len(pieces)))
        parts = [pieces[start : start + step] for start in range(0, len(pieces), step)]
    else:
        parts = _halves(pieces[0], texts)
    return [window for part in parts for window in windows(part, texts, size, limit)]


def _halves(piece: TextPiece, texts: Sequence[str]) -> list[Window]:
    if piece.end - piece.start < 2:
        raise ConfigurationError("the model's window is too small for its template and the question")
    middle = (piece.start + piece.end) // 2
    cut = texts[piece.source].rfind(" ", piece.start + 1, middle) + 1 or middle
    return [[TextPiece(piece.source, piece.start, cut)], [TextPiece(piece.source, cut, piece.end)]]


class Reader:
    """Reads responses with one model."""

    def __init__(self, folder: ModelFolder) -> None:
        self._folder, self._graph = folder, Graph(folder)

    def read(
        self, question: str, contexts: Sequence[str], response: str, claims: Sequence[tuple[int, int]]
    ) -> list[tuple[ReadMark, ...]]:
        """Return the marks of each claim (start and end in the response), by the window that supports it best.

        A claim of which the tokenizer reads nothing has no marks.
        """
        texts = sorted(text for text in contexts if text.strip())
        question = self._shortened(question)
        pieces = self._pieces(response, claims)
        parts = [response[start:end] for start, end in pieces]
        found = self._windows(question, texts, max(parts, key=lambda said: len(self._graph.encode(said)), default=""))
        asked = [
            (number, self._encode(question, texts, window, said))
            for number, said in enumerate(parts)
            for window in _nearest(found, texts, said)
        ]
        rows = self._graph.probabilities([encoding for _, encoding in asked])
        marks: list[list[list[ReadMark]]] = [[] for _ in pieces]
        for (number, encoding), row in zip(asked, rows, strict=True):
            marks[number].append(self._marks(encoding, row, parts[number], pieces[number][0]))
        return [_best(claim, marks) for claim in claims]

    def _shortened(self, question: str) -> str:
        """Return the beginning of a question that takes at most a quarter of the window."""
        encoding, most = self._graph.encode(question), self._folder.limit // 4
        return question if len(encoding) <= most else question[: encoding.offsets[most - 1][0]]

    def _pieces(self, response: str, claims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the parts of the response that are read at once, which leave half of the window to the contexts.

        A model of pairs reads claim by claim, one that labels tokens reads all claims and what stands between them.
        """
        spans = [TextPiece(0, *claim) for claim in claims]

        def size(part: Window) -> int:
            return len(self._graph.encode(response[part[0].start : part[-1].end] if part else ""))

        groups = [spans] if self._folder.kind == "tokens" else [[span] for span in spans]
        most = self._folder.limit // 2
        parts = [part for group in groups if group for part in windows(group, [response], size, most)]
        return [(part[0].start, part[-1].end) for part in parts]

    def _windows(self, question: str, texts: Sequence[str], longest: str) -> list[Window]:
        """Return the windows over the contexts that leave room for the longest part of the response."""
        spans = [TextPiece(n, s.start, s.end) for n, text in enumerate(texts) for s in split_sentences(text)]
        most = self._folder.limit - _MARGIN
        return windows(spans, texts, lambda part: len(self._encode(question, texts, part, longest)), most)

    def _encode(self, question: str, texts: Sequence[str], window: Window, said: str) -> Any:
        by_token, template = self._folder.kind == "tokens", self._folder.template
        if by_token and not template:
            template = known()[f"token_template{'' if question else '_without_question'}"]
        count = len({piece.source for piece in window})
        context = _passages(texts, window, "passage {}: " if by_token and question else "")
        values = {"context": context, "question": question, "claim": said, "count": str(count)}
        text = _SLOT.sub(lambda slot: values[slot[1]], template or "{context}")
        return self._graph.encode(text, None if template and not by_token else said)

    def _marks(self, encoding: Any, row: Any, said: str, start: int) -> list[ReadMark]:
        """Return the marks of what is said from `start` on; a token's blanks are no part of it."""
        if self._folder.kind == "pairs":
            return [ReadMark(start, start + len(said), float(row))]
        marks = []
        for (lo, hi), text, p in zip(encoding.offsets, encoding.sequence_ids, row[: len(encoding)], strict=True):
            if text == 1 and (token := said[lo:hi].strip()):
                lo = said.index(token, lo)
                marks.append(ReadMark(start + lo, start + lo + len(token), float(p)))
        return marks


def _nearest(found: Sequence[Window], texts: Sequence[str], said: str) -> Sequence[Window]:
    """Return the windows to read: of many, those that share the most words with what is said."""
    if len(found) <= _MOST_WINDOWS:
        return found
    wanted = {word.key for word in words(said) if word.content}

    def shared(part: Window) -> int:
        return len(wanted.intersection(word.key for word in words(_passages(texts, part, ""))))

    return sorted(found, key=shared, reverse=True)[:_MOST_WINDOWS]


def _passages(texts: Sequence[str], window: Window, head: str) -> str:
    """Return the texts of a window, one for each context that it reads from."""
    ends: dict[int, tuple[int, int]] = {}
    for span in window:
        ends[span.source] = (ends.get(span.source, (span.start,))[0], span.end)
    slices = (texts[source][start:end] for source, (start, end) in ends.items())
    return "\n".join(head.format(number) + text.strip() for number, text in enumerate(slices, 1))


def _best(claim: tuple[int, int], found: Sequence[Sequence[Sequence[ReadMark]]]) -> tuple[ReadMark, ...]:
    """Return the claim's marks, of each piece by the window whose lowest mark is highest."""
    start, end = claim
    best: list[ReadMark] = []
    for piece in found:
        own = [[mark for mark in marks if mark.start < end and mark.end > start] for marks in piece]
        if any(own):
            best += max(own, key=lambda marks: min((mark.supported for mark in marks), default=-1.0))
    return tuple(best)
