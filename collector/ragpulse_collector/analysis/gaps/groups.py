"""Groups of questions that surely fail more often than the others, also inside a larger topic.

The groups are made without a look at failures: topics, the questions that share a word (in all, in a topic), and the
neighbours of some questions. The one whose failures are the least likely by chance is taken; its questions leave the
others, and so on. The test counts users, and holds over all groups that were tried.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ragpulse_collector.topics import SMALLEST
from ragpulse_collector.topics.fitting import same
from ragpulse_collector.topics.vectors import known_tokens, unit
from ragpulse_evaluators.statistics import Estimate, hajek

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Labels, Matrix

GapKind = Literal["unanswered", "ungrounded"]
_LISTED = 10
"""Groups of a kind that are listed."""
_CENTRES, _NEAR = 300, (0.5, 0.65, 0.8)
"""So many questions have groups of neighbours, at least so alike: cosines without what all questions have in common."""
_PARTS, _OUTAGE, _OUTAGE_LEAST = 7, 2.0, 0.1
"""An outage is a seventh of the range in which the other questions fail twice as often as else, and one in five."""
_CHANCE = 0.05
"""How often any group is listed, of any kind, where failures are spread evenly."""


class SampledQuestion(NamedTuple):
    """A question of the sample, with the probability that it is in it."""

    trace_id: str
    query: str
    topic: str | None
    cluster: int
    fails: Sequence[GapKind | Literal["unclear"]]
    pi: float
    at: float = 0.0
    """Its time, in seconds."""


def share_of(asked: Sequence[SampledQuestion], holds: Sequence[bool], confidence: float = 0.95) -> Estimate | None:
    """Return a share of the requests that a sample stands for, with users as clusters."""
    return hajek(holds, [one.pi for one in asked], clusters=[one.cluster for one in asked], confidence=confidence)


class Groups:
    """All groups that are tried: positions of their questions."""

    def __init__(self, asked: Sequence[SampledQuestion], vectors: Matrix, least_users: int) -> None:
        """`vectors` are those of the questions."""
        import numpy

        known = numpy.linalg.norm(vectors, axis=1, keepdims=True).round()
        self._spread = unit(vectors - vectors.sum(axis=0) / max(1.0, known.sum())) * known
        self._asked, self._least_users = asked, least_users
        self._weights = numpy.array([1.0 / one.pi for one in asked])
        self._texts = numpy.unique([same(one.query) for one in asked], return_inverse=True)[1]
        different = numpy.unique(self._spread, axis=0)
        centres = different[numpy.random.default_rng(0).permutation(len(different))[:_CENTRES]]
        near = (numpy.flatnonzero(cosines >= least) for cosines in centres @ self._spread.T for least in _NEAR)
        groups = (*_sharing(asked), *near)
        self._tried = list({rows.tobytes(): rows for rows in groups if len(rows) >= SMALLEST}.values())
        self._chance = _CHANCE / len(get_args(GapKind)) / max(1, len(self._tried))

    def failing(self, kind: GapKind) -> Iterator[list[int]]:
        """Yield the questions of each group that surely fails in a way; the surest first. Unclear ones are apart."""
        import numpy

        fails = numpy.array([kind in one.fails for one in self._asked])
        left = numpy.array([kind != "ungrounded" or "unclear" not in one.fails for one in self._asked], dtype=bool)
        tried = self._tried
        for _ in range(_LISTED):
            tried = [inside for rows in tried if fails[inside := rows[left[rows]]].sum() >= SMALLEST]
            best = self._surest(tried, fails, left)
            if best is None:
                return
            yield best.tolist()
            left[best] = False

    def _surest(self, groups: Sequence[Labels], fails: Labels, left: Labels) -> Labels | None:
        """Return the group whose failures are the least likely by chance; None where none is sure."""
        overall = float((fails * left * self._weights).sum() / (left * self._weights).sum()) if left.any() else 1.0
        strengths = [self._strength(rows, fails, overall) for rows in groups]
        for strength, rows in sorted(zip(strengths, groups, strict=True), key=lambda pair: -pair[0]):
            if strength < -math.log(self._chance):
                return None
            if self._is_sure(rows, fails, overall) and self._fails_at_other_times(rows, fails, left):
                return rows
        return None

    def _strength(self, rows: Labels, fails: Labels, overall: float) -> float:
        """Return how unlikely the failures of a group are: by chance they are there about once in e^strength.

        Where some of its questions always fail and others never, it is as many questions as differ.
        """
        import numpy

        weights = self._weights[rows]
        rate = float((fails[rows] * weights).sum() / weights.sum())
        if rate <= overall:
            return 0.0
        apart = weights * (fails[rows] - rate)
        alike = float((numpy.bincount(self._texts[rows], apart) ** 2).sum() / max((apart**2).sum(), 1e-9))
        failing = rate * math.log(rate / overall)
        answered = (1.0 - rate) * math.log(max(1.0 - rate, 1e-9) / (1.0 - overall))
        return len(rows) / max(1.0, alike) * (failing + answered)

    def _is_sure(self, rows: Labels, fails: Labels, overall: float) -> bool:
        members, failed = [self._asked[row] for row in rows], fails[rows].tolist()
        users = {one.cluster for one, fails_too in zip(members, failed, strict=True) if fails_too}
        found = share_of(members, failed, 1.0 - self._chance)
        return len(users) >= self._least_users and found is not None and (found.lo or 0.0) > overall

    def _fails_at_other_times(self, rows: Labels, fails: Labels, left: Labels) -> bool:
        """Return whether a group fails not only while everything does: an outage is no missing content.

        The part of the range in which it fails most is left out where the other questions of that time fail as well.
        """
        import numpy

        times = numpy.array([one.at for one in self._asked])
        if not (length := (times.max() - times.min()) / _PARTS):
            return True
        failed = numpy.sort(times[rows][fails[rows]])
        ends = numpy.searchsorted(failed, failed + length, side="right")
        start = failed[int(numpy.argmax(ends - numpy.arange(len(failed))))]
        during = (times >= start) & (times <= start + length)
        inside = numpy.zeros(len(times), dtype=bool)
        inside[rows] = True
        then, usual = left & during & ~inside, left & ~during & ~inside
        elsewhere_fail = float(fails[usual].mean()) if usual.any() else 0.0
        if then.sum() < SMALLEST or fails[then].mean() <= _OUTAGE * max(elsewhere_fail, _OUTAGE_LEAST):
            return True
        elsewhere = rows[~during[rows]]
        members = [self._asked[row] for row in elsewhere]
        found = share_of(members, fails[elsewhere].tolist(), 1.0 - 2.0 * _CHANCE)
        return found is not None and (found.lo or 0.0) > elsewhere_fail


def _sharing(asked: Sequence[SampledQuestion]) -> Iterator[Labels]:
    """Yield the questions of each topic, and those that share a token, in all and in each topic."""
    import numpy

    found: dict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    tokens = known_tokens([one.query.casefold() for one in asked])
    for row, (one, own) in enumerate(zip(asked, tokens, strict=True)):
        for topic in {None, one.topic}:
            for token in {None, *own}:
                found[topic, token].append(row)
    del found[None, None]
    return (numpy.array(rows) for rows in found.values())
