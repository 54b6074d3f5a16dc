"""Drift of questions: topics whose share of a range is not that of the same weekdays of the four weeks before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.topics import share_of, shares
from ragpulse_collector.analysis.topics.ranking import p_changed
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.topics import last_fit
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
    fit = last_fit(store.read)
    # Earlier questions have the names of earlier fits: a topic would be new that is named anew.
    start = max(first - _BASELINE, fit.assigned_from or fit.fitted_at) if fit else first - _BASELINE
    if start >= first:
        return []
    usual = shares(store, Window(start, first, 0), query.filters & weekdays)
    asked = shares(store, now, query.filters)
    sides = ((topic, share_of(asked, topic), share_of(usual, topic)) for topic in sorted({*asked, *usual}))
    tested = [(topic, a, b) for topic, a, b in sides if a and b]
    p_values = benjamini_hochberg([p_changed(a, b) for _, a, b in tested])
    drifted = [
        QuestionDrift(topic, a.mean, b.mean)
        for (topic, a, b), p in zip(tested, p_values, strict=True)
        if p <= _ALPHA and abs(a.mean - b.mean) >= _LEAST
    ]
    return sorted(drifted, key=lambda one: -abs(one.share - one.usual))
