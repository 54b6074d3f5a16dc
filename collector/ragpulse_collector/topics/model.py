"""A topic, all topics of a fit, and the topic of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ragpulse_collector.store.topics import Topic
from ragpulse_collector.topics.vectors import static_vectors

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Embed, Labels, Matrix

ALIKE = 0.4
"""The least cosine of a question and the centre of its topic; below it the question is "other"."""


@dataclass(frozen=True)
class Topics:
    """The topics of a fit, the largest first."""

    topics: Sequence[Topic]
    other: int
    """Questions of the fit that belong to no topic."""
    last_id: int
    """The largest identity ever used: that of a topic that vanished is not used again."""

    @cached_property
    def centres(self) -> Matrix:
        """The centres as rows of a matrix."""
        import numpy

        return numpy.array([topic.centre for topic in self.topics], dtype=numpy.float32)


class Assigned(NamedTuple):
    """The topic of a question, None for other, and how far the question is from the nearest centre."""

    topic: Topic | None
    distance: float
    """1 - cosine, from 0 to 1; 1 where there is no topic."""


def assign(topics: Topics, question: str, embed: Embed = static_vectors) -> Topic | None:
    """Return the topic of a question; None: other."""
    return assign_all(topics, [question], embed)[0].topic


def assign_all(topics: Topics, questions: Sequence[str], embed: Embed = static_vectors) -> list[Assigned]:
    """Return the topic of each question, and its distance."""
    if not topics.topics or not questions:  # reads no model
        return [Assigned(None, 1.0)] * len(questions)
    chosen, cosines = nearest(embed(questions), topics.centres)
    distances = (1 - cosines).clip(0, 1).tolist()
    known = [None if number < 0 else topics.topics[number] for number in chosen]
    return [Assigned(*pair) for pair in zip(known, distances, strict=True)]


def nearest(vectors: Matrix, centres: Matrix) -> tuple[Labels, Matrix]:
    """Return the number of the nearest centre of each vector, -1 where none is near, and the cosine of both."""
    import numpy

    if not len(centres):
        return numpy.full(len(vectors), -1), numpy.full(len(vectors), -1.0, dtype=numpy.float32)
    cosines = vectors @ centres.T
    best = cosines.max(axis=1)
    return numpy.where(best >= ALIKE, cosines.argmax(axis=1), -1), best
