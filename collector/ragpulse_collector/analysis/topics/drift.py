"""Drift of questions: topics whose share of a range is not that of the same weekdays of the four weeks before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.topics import shares
from ragpulse_collector.analysis.topics.ranking import p_changed
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.statistics import benjamini_hochberg

__all__ = ["QuestionDrift", "topics_moved"]

_BASELINE = timedelta(weeks=4)
_ALPHA = 0.01
_LEAST = 0.02
"""The smallest change of a share that is told."""


@dataclass(frozen=True, slots=True)
class QuestionDrift:
    """A topic, or `other`, whose share surely changed."""

    topic: str
    share: float
    usual: float


def topics_moved(store: Store, query: Query) -> list[QuestionDrift]:
    """Return the topics whose share changed, the largest change first; one test over all, users are clusters."""
    now, first = query.window.whole, query.window.first
    count = (now.last - timedelta(microseconds=1)).date() - first.date()
    days = {(first + timedelta(days=day)).isoweekday() for day in range(min(7, count.days + 1))}
    weekdays = Filter(f"isodow(start_time) IN ({', '.join(map(str, sorted(days)))})")
    usual = shares(store, Window(first - _BASELINE, first, 0), query.filters & weekdays)
    moments = {
        topic: (share.moments, usual[topic].moments)
        for topic, share in shares(store, now, query.filters).items()
        if topic in usual
    }
    tested = [(topic, a, b) for topic, (a, b) in moments.items() if a and b]
    p_values = benjamini_hochberg([p_changed(a, b) for _, a, b in tested])
    drifted = [
        QuestionDrift(topic, a.mean, b.mean)
        for (topic, a, b), p in zip(tested, p_values, strict=True)
        if p <= _ALPHA and abs(a.mean - b.mean) >= _LEAST
    ]
    return sorted(drifted, key=lambda one: -abs(one.share - one.usual))
