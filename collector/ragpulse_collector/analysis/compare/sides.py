"""The two sides of a comparison: what a name selects, and its scored units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.selection import Window, dimensions
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import latest_runs
from ragpulse_collector.store.queries.scores import RUN_SCORES, evaluators_in, sample_of
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.errors import nearest

__all__ = ["DIMENSIONS", "Scored", "Side", "Units", "dimension_of", "evaluator_of", "read", "side_of"]

DIMENSIONS = {
    "prompt": "prompt_version",
    "model": "model",
    "variant": "variant",
    "service": "service",
    "release": "release",
}


@dataclass(frozen=True, slots=True)
class Scored:
    """One unit on one side."""

    unit: tuple[str, int]
    time: datetime
    value: float
    pi: float
    cluster: Any
    identified: bool
    explanation: str | None
    stratum: str | None
    question: int | None = None
    """A hash of its text."""


Units = Mapping[tuple[str, int], Scored]


@dataclass(frozen=True, slots=True)
class Side:
    """What `NAME@x`, `judge:j`, `run:ID`, `prompt:v7`, `model:m`, `variant:v` selects."""

    name: str
    evaluator: str | None = None
    version: str | None = None
    judge: str | None = None
    run_id: str | None = None
    column: str | None = None
    value: str | None = None


def dimension_of(by: Any) -> str | None:
    """Return the column that splits the comparison; raises ValueError for several."""
    names = dimensions({"group_by": by})
    if len(names) > 1:
        raise ValueError("by: one dimension at a time")
    if names == ("tag",):
        raise ValueError("by: a trace may have several tags; compare tag:A with tag:B, or filter by tag")
    return names[0] if names else None


def side_of(store: Store, text: str) -> Side:
    """Read the name of a side; raises ValueError, LookupError."""
    kind, colon, value = text.partition(":")
    if colon and kind == "run":
        run = latest_runs(store, run_id=value).get(value)
        if run is None:
            raise LookupError(f"no replay {value!r}")
        return Side(text, evaluator=run.evaluator.partition("@")[0], run_id=value)
    if value and kind == "judge":
        return Side(text, judge=value)
    if colon and kind in DIMENSIONS:
        return Side(text, column=DIMENSIONS[kind], value=value)
    if colon and (kind == "tag" or kind.startswith("metadata.")):
        return Side(text, column=dimensions({"group_by": [kind]})[0], value=value)
    name, at_sign, version = text.partition("@")
    if not at_sign or not name or not version:
        slip = nearest(kind, (*DIMENSIONS, "judge", "run", "tag")) if colon else ""
        raise ValueError(
            f"{text!r}: write NAME@VERSION, judge:..., run:ID, prompt:v7, model:..., variant:..., service:..., "
            f"release:..., tag:... or metadata.KEY:...{slip}"
        )
    return Side(text, evaluator=name, version=version)


def evaluator_of(store: Store, sides: Sequence[Side], params: Mapping[str, Any], window: Window) -> str:
    """Return the evaluator to compare by: the requested one, else one of faithfulness, else any."""
    evaluators = {side.evaluator for side in sides if side.evaluator}
    if len(evaluators) > 1:
        raise ValueError(f"the sides are different evaluators: {', '.join(sorted(evaluators))}")
    evaluator = params.get("evaluator") or next(iter(evaluators), None) or first_of(store, window, FAITHFUL)
    evaluator = evaluator or next(iter(evaluators_in(store, window.parameters)), None)
    if evaluator is None:
        raise LookupError("nothing was scored in this window: start a replay, or look further back")
    return str(evaluator).partition("@")[0]


def read(
    store: Store, side: Side, evaluator: str, window: Window, filters: Filter, by: str | None
) -> dict[tuple[str, int], Scored]:
    """Return the side's units; of several versions or judges the latest."""
    columns = dict.fromkeys((*DIMENSIONS.values(), "query", *filter(None, (by, side.column))))
    sample = sample_of(store, evaluator, window.parameters, filters, columns=tuple(columns))
    conditions, extra = ["status = 'ok'", "normalized IS NOT NULL", "pi IS NOT NULL"], dict(sample.parameters)
    if side.version is not None:
        conditions.append("(starts_with(s.version, $side) OR s.label_version = $side)")
        extra["side"] = side.version
    if side.judge is not None:
        conditions.append("(s.judge = $side OR starts_with(s.judge, $side || ' '))")  # parameters follow the name
        extra["side"] = side.judge
    if side.column is not None:
        conditions.append(f"s.{side.column} = $side")
        extra["side"] = side.value
    source = f"({sample.sql}) s"
    if side.run_id is not None:
        source += f" SEMI JOIN ({RUN_SCORES}) i ON i.score_key = s.score_key"
        extra["run"] = side.run_id
    rows = store.read(
        "SELECT trace_id, span_id, request_time, normalized, pi,"
        " cluster, identified, explanation,"
        f" {f'{by}::VARCHAR' if by else 'NULL'}, CASE WHEN query IS NOT NULL THEN hash(query) END, version, judge"
        f" FROM {source} WHERE {' AND '.join(conditions)}",
        extra,
    ).rows
    newest = max(rows, key=lambda row: (row[2], str(row[10:])), default=None)
    return {
        (row[0].hex, row[1]): Scored((row[0].hex, row[1]), *row[2:10])
        for row in rows
        if newest is not None and row[10:] == newest[10:]
    }
