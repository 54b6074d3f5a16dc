"""The table of operations: every question the API and the pages may ask, and which function answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from ragpulse_collector.analysis.attribution import failure_attribution
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import calibration, suggest
from ragpulse_collector.analysis.compare import compare
from ragpulse_collector.analysis.coverage import coverage
from ragpulse_collector.analysis.documents import documents
from ragpulse_collector.analysis.events import evaluation_events
from ragpulse_collector.analysis.explain import exemplars, explain
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.plan import check, plan
from ragpulse_collector.analysis.series import series
from ragpulse_collector.api import writes
from ragpulse_collector.api.data import (
    StoreWithCopies,
    export_archive,
    pruned,
    remap_all,
    snapshot_file,
    traces_file,
)
from ragpulse_collector.api.evaluators import evaluators
from ragpulse_collector.api.operations import Operation, Operations
from ragpulse_collector.api.outside import names_only
from ragpulse_collector.api.pytest_case import pytest_case
from ragpulse_collector.api.rules import Rules
from ragpulse_collector.api.sql import sql
from ragpulse_collector.api.status import Status
from ragpulse_collector.api.trace import trace_detail, trace_page
from ragpulse_collector.api.traces import trace_list
from ragpulse_collector.app.redaction import masking
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation import DriftWatch, External
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, Store

FILTERS = (
    "from", "to", "service", "environment", "model", "prompt_name", "prompt_version", "variant", "session_id",
    "user_id", "name", "retriever", "error", "q", "where",
)  # fmt: skip

Force = Callable[[str, str | None, Sequence[str]], int]
"""The sampler's way to queue evaluations that a person asked for."""


def operations(
    store: StoreWithCopies,
    settings: Settings,
    *,
    catalog: Catalog,
    rules: Rules,
    status: Status,
    replays: Replays,
    monitors: Monitors,
    drift: DriftWatch,
    prices: Prices,
    force: Force,
    wake: Callable[[], None],
) -> Operations:
    """Join each operation to its function."""
    reads = (*_reads(store, settings, status), *_measures(store), _evaluators(store, catalog, rules))
    return Operations(
        (
            *reads,
            *_rules(rules),
            *_writes(store, catalog, force, wake, masking(settings.collector.redact)),
            *_replays(replays, External(store)),
            *_drift(drift),
            *_monitors(monitors, Targets(store, settings.target)),
            *_data(store, settings, prices),
        )
    )


def _get(path: str, run: Callable[[Mapping[str, Any]], Any], summary: str, *parameters: str) -> Operation:
    many = tuple(name for name in parameters if name == "group_by")
    return Operation(method="GET", path=path, run=run, summary=summary, parameters=parameters, repeatable=many)


def _over(store: Store, ask: Callable[..., Any], **more: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the operation over a store; a `where` is answered under the limits of users' SQL."""

    def run(params: Mapping[str, Any]) -> Any:
        return ask(store.limited() if params.get("where") else store, params, **more)

    return run


def _reads(store: Store, settings: Settings, status: Status) -> tuple[Operation, ...]:
    return (
        _get("traces", _over(store, trace_list), "Traces with their scores.", *FILTERS, "limit", "cursor", "after",
             "sort", "evaluator", "outcome", "document", "failing", "min_score", "max_score", "facets"),
        _get("traces/{trace_id}", partial(trace_detail, store), "One trace with everything known of it.", "at", "only",
             "spans"),
        _get("traces/{trace_id}/html", partial(trace_page, store), "One trace as a self-contained, redacted page."),
        _get("traces/{trace_id}/pytest", partial(pytest_case, store), "A trace as a regression test."),
        _get("status", status, "Received, rejected, evaluated, dropped; and why."),
        Operation(method="POST", path="sql", run=partial(sql, store, settings.collector), scope="read",
                  summary="One read-only SELECT over the views.", parameters=("query", "params"),
                  repeatable=("params",)),
    )  # fmt: skip


def _measures(store: Store) -> tuple[Operation, ...]:
    snapshots = Snapshots(store)
    return (
        _get("metrics", _over(store, series, snapshots=snapshots), "A metric over request time.", "name", "step",
             "width", "group_by", "corrected", "assisted_by", *FILTERS),
        _get("overview", _over(store, overview, snapshots=snapshots), "The headline of a range.", *FILTERS, "only"),
        _get("coverage", _over(store, coverage), "What was eligible, selected, scored and dropped.", *FILTERS),
        _get("exemplars", _over(store, exemplars), "The worst, median and best traces behind a point.", "metric", "t",
             "step", *FILTERS),
        _get("explain", _over(store, explain), "What differs in a selection.", "metric", "sel_from", "sel_to",
             "sel_lo", "sel_hi", *FILTERS),
        _get("compare", _over(store, compare), "Two sides: difference, interval, test, worst flips.", "a", "b",
             "evaluator", "by", *FILTERS),
        _get("check", _over(store, check), "Is quality above a limit?", "evaluator", "min", *FILTERS),
        _get("plan", _over(store, plan), "How many to score for a wanted precision.", "evaluator", "half_width",
             *FILTERS),
        _get("documents", _over(store, documents), "Quality by retrieved document.", "evaluator", "sort", *FILTERS),
        _get("blame", _over(store, failure_attribution), "Retrieval or generation?", "step", *FILTERS),
        _get("calibration", _over(store, calibration), "A judge against people's labels.", "evaluator", *FILTERS),
        _get("labels/suggest", _over(store, suggest), "Traces worth a label.", "evaluator", "limit", *FILTERS),
    )  # fmt: skip


def _evaluators(store: Store, catalog: Catalog, rules: Rules) -> Operation:
    def agreement(name: str) -> dict[str, Any] | None:
        versions = calibration(store, {"evaluator": name})["versions"]
        return versions[0] if versions else None

    run = partial(evaluators, store, describe=catalog.describe, rules=rules.effective, calibration=agreement)
    return _get("evaluators", run, "The evaluators of this installation.")


def _rules(rules: Rules) -> tuple[Operation, ...]:
    parameters = ("name", "evaluators", "rate", "where", "strata")
    return (
        _get("rules", rules.list, "The rules in force."),
        _get("rules/preview", rules.preview, "What a rule would select, and cost.", *parameters),
        Operation(method="POST", path="rules", run=rules.create, scope="admin", summary="Add a rule.",
                  parameters=parameters, repeatable=("evaluators", "strata")),
        Operation(method="PUT", path="rules/{name}", run=rules.replace, scope="admin", summary="Change a rule.",
                  parameters=parameters, repeatable=("evaluators", "strata")),
        Operation(method="DELETE", path="rules/{name}", run=rules.delete, scope="admin", summary="Remove a rule."),
    )  # fmt: skip


def _replays(replays: Replays, external: External) -> tuple[Operation, ...]:
    def get(params: Mapping[str, Any]) -> dict[str, Any]:
        return replays.get(str(params["id"]))

    def cancel(params: Mapping[str, Any]) -> dict[str, Any]:
        return replays.cancel(str(params["id"]))

    def resume(params: Mapping[str, Any]) -> dict[str, Any]:
        cap = params.get("max_usd")
        return replays.resume(str(params["id"]), max_usd=None if cap is None else float(cap))

    def cases(params: Mapping[str, Any]) -> dict[str, Any]:
        handed = external.cases(params)
        return {**get(params), "cases": handed}

    def results(params: Mapping[str, Any]) -> dict[str, Any]:
        accepted = external.results(params)
        return {**get(params), "accepted": accepted}

    asked = ("evaluators", "external", "since", "where", "limit", "max_usd", "judge", "dry_run", *FILTERS)
    return (
        _get("replays", replays.list, "Replays, newest first."),
        _get("replays/{id}", get, "One replay with its progress."),
        Operation(method="POST", path="replays", run=replays.create, scope="admin", parameters=asked,
                  repeatable=("evaluators", "external", "loads", "prompts"), outside=names_only,
                  summary="Run stored traces through evaluators, or only say what it would take."),
        Operation(method="POST", path="replays/{id}/cancel", run=cancel, scope="admin", summary="Stop a replay."),
        Operation(method="POST", path="replays/{id}/resume", run=resume, scope="admin", parameters=("max_usd",),
                  summary="Continue a stopped replay."),
        Operation(method="GET", path="replays/{id}/cases", run=cases, scope="admin", parameters=("limit",),
                  summary="Cases for a caller who alone has the evaluator."),
        Operation(method="POST", path="replays/{id}/results", run=results, scope="admin",
                  parameters=("results", "capped"), repeatable=("results",), summary="What the caller found."),
    )  # fmt: skip


def _drift(drift: DriftWatch) -> tuple[Operation, ...]:
    return (
        _get("drift", drift.report, "Whose is a move of the score: the judge's or the application's?", "evaluator",
             "back", *FILTERS),
        Operation(method="POST", path="drift/anchors", run=drift.freeze, scope="admin",
                  parameters=("evaluator", "n", *FILTERS), summary="Freeze judged answers to watch a judge by."),
        Operation(method="POST", path="drift/run", run=drift.run, scope="admin", parameters=("evaluator",),
                  summary="Judge the frozen answers again, without the recorded calls."),
    )  # fmt: skip


def _monitors(monitors: Monitors, targets: Targets) -> tuple[Operation, ...]:
    def test(params: Mapping[str, Any]) -> dict[str, Any]:
        return monitors.test(str(params["name"]))

    return (
        _get("monitors", monitors.list, "Monitors with state and history."),
        _get("targets", targets, "Where metrics should be, and whether they surely are.", *FILTERS),
        Operation(method="POST", path="monitors/{name}/test", run=test, scope="admin", summary="Send a test alert."),
    )  # fmt: skip


def _data(store: StoreWithCopies, settings: Settings, prices: Prices) -> tuple[Operation, ...]:
    both: tuple[Literal["GET", "POST"], ...] = ("GET", "POST")
    return (
        *(Operation(method=method, path="export", run=partial(export_archive, store), parameters=("format",),
                    summary="Every view as Parquet or JSON lines, in one tar.") for method in both),
        _get("export/traces", partial(traces_file, store, max_rows=settings.collector.sql_max_rows),
             "The filtered list of traces as Parquet.", *FILTERS, "sort", "evaluator", "outcome", "document",
             "failing", "min_score", "max_score", "format"),
        _get("export/evaluations", partial(evaluation_events, store),
             "Verdicts as `gen_ai.evaluation.result` events: a body for any OTLP receiver of logs (JSON).",
             "from", "to", "evaluator", "limit"),
        *(Operation(method=method, path="snapshot", run=partial(snapshot_file, store), scope="admin",
                    summary="A consistent copy of the database.") for method in both),
        Operation(method="POST", path="prune", run=partial(pruned, store), scope="admin",
                  parameters=("older_than", "service", "dry_run"),
                  summary="Delete what is older than an age, or everything of a service."),
        Operation(method="POST", path="remap", run=partial(remap_all, store, price=prices.settle), scope="admin",
                  summary="Derive the canonical columns again from the raw attributes."),
    )  # fmt: skip


def _writes(
    store: Store, catalog: Catalog, force: Force, wake: Callable[[], None], mask: writes.Mask
) -> tuple[Operation, ...]:
    evaluate = partial(writes.force, queue=force, known=catalog.online, wake=wake)
    return (
        Operation(method="POST", path="labels", run=partial(writes.label, store, mask=mask), scope="admin",
                  summary="A person's verdict.",
                  parameters=("trace_id", "span_id", "evaluator", "score", "passing", "comment", "annotator",
                              "label_pi")),
        Operation(method="POST", path="scores", run=partial(writes.score, store, mask=mask), scope="ingest",
                  summary="Feedback on a trace.",
                  parameters=("trace_id", "span_id", "name", "score", "label", "comment")),
        Operation(method="POST", path="evaluate", run=evaluate, scope="admin", summary="Evaluate one trace now.",
                  parameters=("trace_id", "evaluators"), repeatable=("evaluators",)),
    )  # fmt: skip
