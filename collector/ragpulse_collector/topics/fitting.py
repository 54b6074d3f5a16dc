"""Topics of many questions at once. The same questions give the same topics, in any order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ragpulse_collector.refusals import Conflict
from ragpulse_collector.store.topics import Topic
from ragpulse_collector.topics.clusters import SEED, SMALLEST, clustered
from ragpulse_collector.topics.model import Topics, nearest
from ragpulse_collector.topics.terms import terms_by_topic
from ragpulse_collector.topics.vectors import static_vectors, unit

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Embed, Labels, Matrix

LEAST_QUESTIONS, MOST_QUESTIONS = 500, 20_000
MOST_TEXTS = 10_000
"""Different questions that groups are found in: the time grows with their square. All are then given to the groups."""
LEAST_USERS = 5
"""Users behind each text that is shown."""
LONGEST_SHOWN = 300
NAMED_BY = 3


def name_of(terms: Sequence[str], number: int) -> str:
    """Return the name of a topic that nobody named."""
    return ", ".join(terms[:NAMED_BY]) or f"Topic {number}"


def free_name(name: str, number: int, taken: Collection[str]) -> str:
    """Return a name that no other topic has (`taken`, in lower case)."""
    return f"{name} ({number})" if name.casefold() in taken else name


class Asked(NamedTuple):
    """A question, and an identity of its user."""

    question: str
    user: str


@dataclass(frozen=True, slots=True)
class _Placed:
    """The questions of each topic, and how close each text is to the centre of its topic."""

    members: list[list[Asked]]
    closeness: dict[str, float]


def fit(
    questions: Sequence[str],
    users: Sequence[str],
    *,
    least_users: int = LEAST_USERS,
    embed: Embed = static_vectors,
) -> Topics:
    """Return the topics of questions; `users` are those who asked, in the same order.

    Of more than 20,000 questions a random part is read. Fewer than 500 are refused. A text is shown only
    where `least_users` different users asked it, a term where as many used it.
    """
    if len(questions) < LEAST_QUESTIONS:
        raise Conflict(f"topics need {LEAST_QUESTIONS} questions; there are {len(questions)}")
    asked = _sampled([Asked(question, user) for question, user in zip(questions, users, strict=True)])
    counts = Counter(item.question for item in asked)
    texts = list(counts)
    vectors = embed(texts)
    centres = _centres(vectors, list(counts.values()))
    placed = _placed(asked, texts, vectors, centres)
    found = _described(placed, centres, least_users)
    return Topics(found, len(asked) - sum(topic.size for topic in found), last_id=len(found))


def _sampled(asked: list[Asked]) -> list[Asked]:
    """Return at most as many questions as a fit reads, in an order that depends on nothing but themselves."""
    ordered = sorted(asked)
    return ordered if len(asked) <= MOST_QUESTIONS else sorted(random.Random(SEED).sample(ordered, MOST_QUESTIONS))


def _centres(vectors: Matrix, counts: list[int]) -> Matrix:
    """Return the centres of the groups that have enough questions, after each question went to its nearest."""
    import numpy

    weights = numpy.array(counts, dtype=numpy.float32)
    labels = numpy.full(len(vectors), -1)
    known = numpy.flatnonzero(vectors.any(axis=1))
    if len(known) > MOST_TEXTS:
        known = numpy.sort(numpy.random.default_rng(SEED).choice(known, MOST_TEXTS, replace=False))
    if len(known):
        labels[known] = clustered(vectors[known], weights[known])
    first = _means(vectors, weights, labels)
    return _means(vectors, weights, nearest(vectors, first)[0])


def _means(vectors: Matrix, weights: Matrix, labels: Labels) -> Matrix:
    """Return the mean direction of each group of enough questions, the largest first."""
    import numpy

    inside = labels >= 0
    sizes = numpy.bincount(labels[inside], weights[inside])
    sums = numpy.zeros((len(sizes), vectors.shape[1]), dtype=numpy.float32)
    numpy.add.at(sums, labels[inside], vectors[inside] * weights[inside, None])
    order = [number for number in numpy.argsort(-sizes, kind="stable") if sizes[number] >= SMALLEST]
    return unit(sums[order])


def _placed(asked: Sequence[Asked], texts: Sequence[str], vectors: Matrix, centres: Matrix) -> _Placed:
    chosen, closeness = nearest(vectors, centres)
    topic_of = dict(zip(texts, chosen.tolist(), strict=True))
    members: list[list[Asked]] = [[] for _ in centres]
    for item in asked:
        if (number := topic_of[item.question]) >= 0:
            members[number].append(item)
    return _Placed(members, dict(zip(texts, closeness.tolist(), strict=True)))


def _described(placed: _Placed, centres: Matrix, least_users: int) -> tuple[Topic, ...]:
    """Return the topics with their texts, the largest first."""
    terms = terms_by_topic(placed.members, least_users)
    order = sorted(range(len(centres)), key=lambda number: -len(placed.members[number]))
    shown = [central(members, placed.closeness, least_users) for members in placed.members]
    return tuple(
        Topic(
            topic_id=rank,
            name=name_of(tuple(terms[number]), rank),
            question=shown[number][0],
            question_users=shown[number][1],
            terms=tuple(terms[number]),
            term_users=tuple(terms[number].values()),
            size=len(placed.members[number]),
            centre=tuple(centres[number].tolist()),
        )
        for rank, number in enumerate(order, 1)
        if placed.members[number]
    )


def central(
    members: Sequence[tuple[str, str]], closeness: dict[str, float], least_users: int
) -> tuple[str | None, int]:
    """Return the text nearest to the centre that enough users asked, in any case and spacing, and how many did."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for text, user in members:
        users[same(text)].add(user)
    shown = [text for text, _ in members if len(text) <= LONGEST_SHOWN and len(users[same(text)]) >= least_users]
    best = max(shown, key=lambda text: (closeness[text], text), default=None)
    return best, 0 if best is None else len(users[same(best)])


def same(text: str) -> str:
    """Return a question without case, spaces and final marks."""
    return " ".join(text.casefold().split()).rstrip("?!. ")
