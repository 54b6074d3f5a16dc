"""A topic, all topics of a fit, and the topic of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ragpulse_collector.topics.vectors import static_vectors

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Embed, Labels, Matrix

ALIKE = 0.4
"""The least cosine of a question and the centre of its topic; below it the question is "other"."""


@dataclass(frozen=True, slots=True)
class Topic:
    """Questions that mean about the same."""

    id: int
    name: str
    question: str | None
    """The most central question that enough users asked; None where there is none."""
    question_users: int
    """How many asked it."""
    terms: tuple[str, ...]
    """Words that distinguish the topic, the best first; each was used by enough users."""
    term_users: tuple[int, ...]
    """How many used each."""
    size: int
    """Questions of the fit."""
    centre: tuple[float, ...]


@dataclass(frozen=True)
class Topics:
    """The topics of a fit, the largest first."""

    topics: tuple[Topic, ...]
    other: int
    """Questions of the fit that belong to no topic."""
    last_id: int
    """The largest identity ever used: that of a topic that vanished is not used again."""

    @cached_property
    def centres(self) -> Matrix:
        """The centres as rows of a matrix."""
        import numpy

        return numpy.array([topic.centre for topic in self.topics], dtype=numpy.float32)


def assign(topics: Topics, question: str, embed: Embed = static_vectors) -> Topic | None:
    """Return the topic of a question; None: other."""
    return assign_all(topics, [question], embed)[0]


def assign_all(topics: Topics, questions: Sequence[str], embed: Embed = static_vectors) -> list[Topic | None]:
    """Return the topic of each question; None: other."""
    if not topics.topics or not questions:  # reads no model
        return [None] * len(questions)
    chosen = nearest(embed(questions), topics.centres)
    return [None if number < 0 else topics.topics[number] for number in chosen]


def nearest(vectors: Matrix, centres: Matrix) -> Labels:
    """Return the number of the nearest centre of each vector; -1 where none is near."""
    import numpy

    if not len(centres):
        return numpy.full(len(vectors), -1)
    cosines = vectors @ centres.T
    return numpy.where(cosines.max(axis=1) >= ALIKE, cosines.argmax(axis=1), -1)
