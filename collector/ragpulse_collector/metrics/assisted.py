"""A sampled judge's series made more precise by a check that scored everything: `GET metrics` with `assisted_by`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse_collector.metrics.estimate import point
from ragpulse_collector.metrics.filters import Filter
from ragpulse_collector.metrics.units import sample_of
from ragpulse_collector.metrics.window import Window, iso
from ragpulse_collector.store import Store
from ragpulse_evaluators.statistics import assisted_mean

__all__ = ["assist"]

_NO_HELP = "too few judged (below 30, or 10 of the rarer kind), all judged, or the check does not foresee the verdict"
_SEVERAL = "several versions were asked here, and nothing says which one an answer not drawn would have met"
_REPLAYED = "a replay judged some of these: their chances are not the rule's"
Place = tuple[Any, ...]
"""A bucket's start and the values of its group."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that the judge's rule could have drawn."""

    unit: int
    place: Place
    pi: float
    upstream: float
    drawn: bool
    covered: bool
    """Whether the check was to score it, whatever the draw."""
    check: float | None


@dataclass(frozen=True, slots=True)
class _Verdict:
    value: float
    pi: float
    online: bool


def assist(
    store: Store,
    evaluator: str,
    check: str,
    window: Window,
    keep: Filter,
    groups: tuple[str, ...],
    lines: Iterable[dict[str, Any]],
) -> None:
    """Move and narrow each point of a quality series by what `check` says of all answers that could have been judged.

    A point gets `unassisted` (value, lo, hi as they were) and `assisted` (`n_all`, `unchecked`, `lam`, `narrowing`,
    `note`). Answers without a score of the check stay in and tell nothing. Raises ValueError where either evaluator has
    no scores from 0 to 1, and where the check was not to score every answer that the judge's rule could draw.
    """
    answers = _answers(store, evaluator, check, window, keep, groups)
    verdicts = _verdicts(store, evaluator, window, keep)
    _refuse_what_cannot_help(evaluator, check, answers)
    places: dict[Place, list[_Answer]] = defaultdict(list)
    for one in answers:
        places[one.place].append(one)
    by_time = {(iso(at), *group): found for (at, *group), found in places.items()}
    for line in lines:
        line["assisted_by"] = check
        version = line["version"], line["judge"]
        others = {unit for other, found in verdicts.items() if other != version for unit in found if found[unit].online}
        for shown in line["points"]:
            if shown["value"] is not None:
                met = by_time.get((shown["t"], *line["group"].values()), [])
                _narrow(shown, met, [verdicts[version].get(one.unit) for one in met], others)


def _narrow(
    shown: dict[str, Any], answers: Sequence[_Answer], found: Sequence[_Verdict | None], others: set[int]
) -> None:
    pairs = list(zip(answers, found, strict=True))
    by_rule = sum(got is not None and got.online and got.pi == one.pi for one, got in pairs)
    assisted, note = None, None
    if by_rule < shown["n"]:
        note = _REPLAYED
    elif any(one.unit in others for one in answers):
        note = _SEVERAL
    else:
        assisted = assisted_mean(
            [None if got is None else got.value for got in found],
            [one.check for one in answers],
            [one.pi for one in answers],
            [one.upstream for one in answers],
            drawn=[one.drawn or got is not None for one, got in pairs],
        )
    if assisted is not None and not assisted.lam:
        note = _NO_HELP
    shown["unassisted"] = {key: shown[key] for key in ("value", "lo", "hi")}
    shown["assisted"] = {
        "n_all": len(answers),
        "unchecked": sum(one.check is None for one in answers),
        "lam": assisted.lam if assisted else 0.0,
        "narrowing": assisted.narrowing if assisted else 1.0,
        "note": note,
    }
    if assisted is not None:
        shown |= point(assisted)


def _refuse_what_cannot_help(evaluator: str, check: str, answers: Sequence[_Answer]) -> None:
    covered = sum(one.covered for one in answers)
    if covered < len(answers):
        raise ValueError(
            f"{check} was to score only {covered:,} of the {len(answers):,} answers that {evaluator} could have been"
            " asked about: give it a rule at rate 1.0 for all of them, or choose a range or filter in which it has one"
        )
    if answers and all(one.check is None for one in answers):
        raise ValueError(f"{check} has no scores from 0 to 1 in this range, so it shares no scale with {evaluator}")


def _answers(
    store: Store, evaluator: str, check: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> list[_Answer]:
    """Every unit that the judge's rule could have drawn, with what the check said of it first.

    First, since that was said of all alike; what somebody asked again later may depend on the draw.
    """
    listed = "".join(f", t.{group}" for group in groups)
    within = "request_time >= $first AND request_time < $last"
    rows = store.read(
        f"""
        WITH asked AS (
            SELECT trace_id, span_id, any_value(request_time) AS request_time, max(pi) AS pi,
                   bool_or(sampled) AS sampled, bool_or(reason = 'budget') AS capped, any_value(u) AS u
            FROM raw.decisions
            WHERE latest AND pi > 0 AND reason <> 'late' AND {within} AND split_part(evaluator, '@', 1) = $evaluator
            GROUP BY trace_id, span_id
        ), covered AS (
            SELECT trace_id, span_id, max(pi) AS pi FROM raw.decisions
            WHERE latest AND {within} AND split_part(evaluator, '@', 1) = $check GROUP BY trace_id, span_id
        ), said AS (
            SELECT trace_id, span_id, arg_min(normalized, created_at) AS value FROM raw.scores
            WHERE evaluator = $check AND source = 'online' AND status = 'ok' AND {within} GROUP BY trace_id, span_id
        )
        SELECT hash(d.trace_id, d.span_id, $evaluator::VARCHAR), {window.bucket("d.request_time")}{listed}, d.pi,
               coalesce(t.upstream_pi, 1),
               d.sampled OR (d.capped AND d.u * coalesce(t.upstream_pi, 1) < d.pi),
               coalesce(c.pi, 0) >= coalesce(t.upstream_pi, 1) * (1 - 1e-9), s.value
        FROM asked d
        JOIN (SELECT * FROM raw.trace_facts WHERE latest AND {keep.sql}) t ON t.trace_id = d.trace_id
        LEFT JOIN covered c ON c.trace_id = d.trace_id AND c.span_id = d.span_id
        LEFT JOIN said s ON s.trace_id = d.trace_id AND s.span_id = d.span_id
        """,
        {"evaluator": evaluator, "check": check, **window.parameters, **keep.parameters},
    ).rows
    place = slice(1, 2 + len(groups))
    return [_Answer(row[0], row[place], *row[place.stop :]) for row in rows]


def _verdicts(
    store: Store, evaluator: str, window: Window, keep: Filter
) -> dict[tuple[str | None, str | None], dict[int, _Verdict]]:
    """The judge's verdicts that enter its series, by version and judge, then unit."""
    sample = sample_of(store, evaluator, window, keep)
    found: dict[tuple[str | None, str | None], dict[int, _Verdict]] = defaultdict(dict)
    for version, judge, unit, value, pi, source in store.read(
        f"SELECT version, judge, unit, normalized, pi, source FROM ({sample.sql})"
        " WHERE pi IS NOT NULL AND status = 'ok' AND normalized IS NOT NULL",
        sample.parameters,
    ).rows:
        found[version, judge][unit] = _Verdict(value, pi, source == "online")
    return found
