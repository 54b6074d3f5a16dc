"""Suggests judged traces to label: a random sample, in which uncertain verdicts are more likely."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.calibration import JudgedUnit, judged_units
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, trace_rows
from ragpulse_collector.store.queries.traces import listed

_LEAST_LABEL_PI = 0.05
"""The smallest probability of being suggested: the least certain traces alone say nothing about the others."""
MAX_SUGGESTIONS = 200
_ROUNDS = 200
"""The most rounds of suggestions."""


@listed
class Suggestion(ScoredTrace):
    """A trace to label."""

    label_pi: float = field(kw_only=True)
    """The probability with which it was drawn."""


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Traces worth a label."""

    traces: Sequence[Suggestion]


def suggest(store: Store, query: Query, evaluator: str, limit: int) -> Suggestions:
    """Answer `GET labels/suggest`: judged traces to label, each with its sampling probability (`label_pi`).

    Less certain verdicts have a higher probability, never below 0.05, so that the corrected estimate stays unbiased.
    Traces that were not drawn are drawn again in the next round: suggestions continue until every trace is labelled.
    """
    judged = [answer for answer in judged_units(store, evaluator, query.window, query.filters) if answer.human is None]
    draws = {answer.trace_id: label_draw(evaluator, answer) for answer in judged}
    first = dict(sorted(draws.items(), key=lambda entry: entry[1])[: min(MAX_SUGGESTIONS, limit)])
    rows = trace_rows(store, list(first))
    return Suggestions([extended(Suggestion, row, label_pi=first[row.trace_id][2]) for row in rows])


def label_draw(evaluator: str, answer: JudgedUnit) -> tuple[int, float, float]:
    """Return the round in which a trace is drawn, its position in the round (0..1), and the probability of that round.

    Both depend on trace and verdict only: a part of a round is a random sample of it.
    """
    pi = _LEAST_LABEL_PI + 0.45 * 4.0 * answer.value * (1.0 - answer.value)
    for draw_round in range(_ROUNDS):
        u = _position(f"{evaluator}:{draw_round}" if draw_round else evaluator, answer)
        if u < pi:
            return draw_round, u / pi, pi * (1.0 - pi) ** draw_round
    return _ROUNDS, 1.0, (1.0 - pi) ** _ROUNDS


def _position(name: str, answer: JudgedUnit) -> float:
    """Return a number in [0, 1) for each trace and round, independent of the sampler's u."""
    return int(hashlib.sha256(f"label:{name}:{answer.trace_id}".encode()).hexdigest()[:13], 16) / 16.0**13
