"""The table of operations: every question the API and the pages may ask, and which function answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ragpulse_collector.analysis.attribution import failure_attribution
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import calibration, suggest
from ragpulse_collector.analysis.compare import compare
from ragpulse_collector.analysis.documents import documents
from ragpulse_collector.analysis.explain import exemplars, explain
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.plan import check, plan
from ragpulse_collector.analysis.series import series
from ragpulse_collector.analysis.traffic import coverage
from ragpulse_collector.api import answers, models
from ragpulse_collector.api.handlers import datasets, writes
from ragpulse_collector.api.handlers.data import (
    ARROW,
    StoreWithCopies,
    export_archive,
    pruned,
    remap_all,
    snapshot_file,
    sql,
    traces_file,
)
from ragpulse_collector.api.handlers.evaluators import evaluators, names_only
from ragpulse_collector.api.handlers.events import evaluation_events
from ragpulse_collector.api.handlers.rules import Rules
from ragpulse_collector.api.handlers.status import Status
from ragpulse_collector.api.handlers.trace import pytest_case, trace_detail, trace_page
from ragpulse_collector.api.handlers.traces import session_detail, session_list, trace_list
from ragpulse_collector.api.operations import Operation, Operations
from ragpulse_collector.api.params import Params
from ragpulse_collector.app.redaction import masking
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation import DriftWatch, External
from ragpulse_collector.evaluation.drift.report import forget_anchors
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, Store

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
            *_datasets(store),
            *_monitors(monitors, Targets(store, settings.target, known=lambda: catalog.registry.names)),
            *_data(store, settings, prices),
        )
    )


def _get(
    path: str, run: Callable[[Any], Any], summary: str, params: type[Params], answer: Any, *, bound: bool = False
) -> Operation:
    return Operation(method="GET", path=path, run=run, summary=summary, params=params, answer=answer, bound=bound)


def _over(store: Store, ask: Callable[..., Any], **more: Any) -> Callable[[models.Filters], Any]:
    """Return the operation over a store; a `where` is answered under the limits of users' SQL."""

    def run(params: models.Filters) -> Any:
        return ask(store.limited() if params.where else store, params, **more)

    return run


def _measure(store: Store, ask: Callable[..., Any], **more: Any) -> Callable[[models.Filters], Any]:
    """Like `_over` for a function of the metrics, which takes the parameters as a mapping."""

    def given(chosen: Store, params: Params, **options: Any) -> Any:
        return ask(chosen, params.given(), **options)

    return _over(store, given, **more)


def _reads(store: Store, settings: Settings, status: Status) -> tuple[Operation, ...]:
    return (
        _get("traces", _over(store, trace_list), "Traces with their scores.", models.TraceList, answers.Traces,
             bound=True),
        _get("traces/{trace_id}", partial(trace_detail, store), "One trace with everything known of it.",
             models.TraceDetail, answers.Trace, bound=True),
        _get("traces/{trace_id}/html", partial(trace_page, store), "One trace as a self-contained, redacted page.",
             models.OneTrace, answers.TextFile, bound=True),
        _get("traces/{trace_id}/pytest", partial(pytest_case, store), "A trace as a regression test.",
             models.OneTrace, answers.TextFile, bound=True),
        _get("sessions", _over(store, session_list), "Conversations with their figures.", models.SessionList,
             answers.Sessions),
        Operation(method="GET", path="sessions/{id}", slashes=True, run=partial(session_detail, store),
                  params=models.OneSession, answer=answers.SessionTurns,
                  summary="The turns of a conversation, in order."),
        _get("status", status, "Received, rejected, evaluated, dropped; and why.", Params, answers.Status),
        Operation(method="POST", path="sql", run=partial(sql, store, settings.collector), params=models.Sql,
                  answer=answers.Table, files=(ARROW,), summary="One read-only SELECT over the views."),
    )  # fmt: skip


def _measures(store: Store) -> tuple[Operation, ...]:
    over, snapshots = partial(_measure, store), Snapshots(store)
    return (
        _get("metrics", over(series, snapshots=snapshots), "A metric over request time.", models.Metrics,
             answers.Metrics | answers.ManyMetrics, bound=True),
        _get("overview", over(overview, snapshots=snapshots), "The headline of a range.", models.Overview,
             answers.Overview),
        _get("coverage", over(coverage), "What was eligible, selected, scored and dropped.", models.Filters,
             answers.Coverage),
        _get("exemplars", over(exemplars), "The worst, median and best traces behind a point.", models.Exemplars,
             answers.Exemplars, bound=True),
        _get("explain", over(explain), "What differs in a selection.", models.Explain, answers.Explanation),
        _get("compare", over(compare), "Two sides: difference, interval, test, worst flips.", models.Compare,
             answers.Comparison),
        _get("check", over(check), "Is quality above a limit?", models.Check, answers.Check, bound=True),
        _get("plan", over(plan), "How many to score for a wanted precision.", models.Plan, answers.Plan),
        _get("documents", over(documents), "Quality by retrieved document.", models.Documents, answers.Documents,
             bound=True),
        _get("blame", over(failure_attribution), "Retrieval or generation?", models.Blame, answers.Attribution),
        _get("calibration", over(calibration), "A judge against people's labels.", models.OfEvaluator,
             answers.Calibration),
        _get("labels/suggest", over(suggest), "Traces worth a label.", models.Suggest, answers.Suggestions),
    )  # fmt: skip


def _evaluators(store: Store, catalog: Catalog, rules: Rules) -> Operation:
    def agreement(name: str) -> dict[str, Any] | None:
        versions = calibration(store, {"evaluator": name})["versions"]
        return versions[0] if versions else None

    run = partial(evaluators, store, describe=catalog.describe, rules=rules.effective, calibration=agreement)
    return _get("evaluators", run, "The evaluators of this installation.", Params, answers.Evaluators)


def _rules(rules: Rules) -> tuple[Operation, ...]:
    draft: dict[str, Any] = {"params": models.RuleDraft, "scope": "admin", "answer": answers.Rule}
    return (
        _get("rules", rules.list, "The rules in force.", Params, answers.Rules),
        _get("rules/preview", rules.preview, "What a rule would select, and cost.", models.RuleDraft,
             answers.RulePreview),
        Operation(method="POST", path="rules", run=rules.create, summary="Add a rule.", **draft),
        Operation(method="PUT", path="rules/{name}", run=rules.replace, summary="Change a rule.", **draft),
        Operation(method="DELETE", path="rules/{name}", run=rules.delete, params=models.Named, scope="admin",
                  answer=answers.Done, summary="Remove a rule."),
    )  # fmt: skip


def _replays(replays: Replays, external: External) -> tuple[Operation, ...]:
    def cases(params: models.Cases) -> dict[str, Any]:
        handed = external.cases(params.given())
        return {**replays.get(params.id), "cases": handed}

    def results(params: models.Results) -> dict[str, Any]:
        accepted = external.results(params.given())
        return {**replays.get(params.id), "accepted": accepted}

    return (
        _get("replays", lambda _: replays.list(), "Replays, newest first.", Params, answers.Replays),
        _get("replays/{id}", lambda params: replays.get(params.id), "One replay with its progress.", models.ById,
             answers.Replay),
        Operation(method="POST", path="replays", run=lambda params: replays.create(params.given()), scope="admin",
                  params=models.Replay, answer=answers.Replays | answers.Bill, outside=names_only,
                  summary="Run stored traces through evaluators, or only report what it would take."),
        Operation(method="POST", path="replays/{id}/cancel", run=lambda params: replays.cancel(params.id),
                  params=models.ById, answer=answers.Replay, scope="admin", summary="Stop a replay."),
        Operation(method="POST", path="replays/{id}/resume", params=models.Resume, answer=answers.Replay, scope="admin",
                  run=lambda params: replays.resume(params.id, max_usd=params.max_usd),
                  summary="Continue a stopped replay."),
        Operation(method="GET", path="replays/{id}/cases", run=cases, params=models.Cases, answer=answers.Cases,
                  scope="admin", summary="Cases for a caller who alone has the evaluator."),
        Operation(method="POST", path="replays/{id}/results", run=results, params=models.Results,
                  answer=answers.Accepted, scope="admin", summary="What the caller found."),
    )  # fmt: skip


def _drift(drift: DriftWatch) -> tuple[Operation, ...]:
    return (
        _get("drift", lambda params: drift.report(params.given()),
             "Whose is a move of the score: the judge's or the application's?", models.Drift,
             answers.Drift | answers.Watched),
        Operation(method="POST", path="drift/anchors", run=lambda params: drift.freeze(params.given()),
                  params=models.Anchors, answer=answers.Drift, scope="admin",
                  summary="Keep judged answers to watch a judge by."),
        Operation(method="POST", path="drift/run", run=lambda params: drift.run(params.given()),
                  params=models.Evaluator, answer=answers.Drift, scope="admin",
                  summary="Judge the kept answers again, without the recorded calls."),
    )  # fmt: skip


def _datasets(store: Store) -> tuple[Operation, ...]:
    return (
        _get("datasets", lambda _: datasets.listed(store), "Datasets with their sizes.", Params, answers.Datasets),
        _get("datasets/{id}", partial(datasets.one, store), "The questions of a dataset.", models.ById,
             answers.Dataset),
        Operation(method="POST", path="datasets/{id}", run=partial(datasets.add, store), params=models.DatasetDraft,
                  answer=answers.DatasetFilled, scope="admin", summary="Add traces or items to a dataset."),
        Operation(method="DELETE", path="datasets/{id}", run=partial(datasets.delete, store), params=models.ById,
                  answer=answers.Done, scope="admin", summary="Delete a dataset."),
    )  # fmt: skip


def _save_monitor(monitors: Monitors, params: models.MonitorDraft, *, replace: bool) -> dict[str, Any]:
    saved = monitors.definitions.save(params.settings(), actor=params.caller.actor, replace=replace)
    return saved.settings.model_dump(mode="json")


def _mute_monitor(monitors: Monitors, params: models.Mute) -> dict[str, Any]:
    muted = monitors.mute(params.name, params.for_, actor=params.caller.actor)
    return muted.settings.model_dump(mode="json", exclude={"webhook", "slack", "secret"})


def _delete_monitor(monitors: Monitors, params: models.Named) -> dict[str, Any]:
    monitors.definitions.delete(params.name, actor=params.caller.actor)
    return {"ok": True}


def _monitors(monitors: Monitors, targets: Targets) -> tuple[Operation, ...]:
    draft: dict[str, Any] = {"params": models.MonitorDraft, "answer": answers.MonitorSaved, "scope": "admin"}
    return (
        _get("monitors", lambda _: monitors.list(), "Monitors with state and history.", Params, answers.Monitors),
        _get("monitors/preview", lambda params: monitors.preview(params.settings()),
             "How often a monitor would have fired, and what it can detect.", models.MonitorDraft,
             answers.MonitorPreview),
        Operation(method="POST", path="monitors", run=partial(_save_monitor, monitors, replace=False),
                  summary="Make a monitor.", **draft),
        Operation(method="PUT", path="monitors/{name}", run=partial(_save_monitor, monitors, replace=True),
                  summary="Change a monitor.", **draft),
        Operation(method="DELETE", path="monitors/{name}", run=partial(_delete_monitor, monitors), params=models.Named,
                  answer=answers.Done, scope="admin", summary="Delete a monitor."),
        Operation(method="POST", path="monitors/{name}/mute", run=partial(_mute_monitor, monitors), params=models.Mute,
                  answer=answers.MonitorSaved, scope="admin", summary="Send no messages until a time."),
        _get("targets", lambda params: targets(params.given()),
             "Where metrics should be, and whether they surely are.", models.Filters, answers.Targets),
        Operation(method="POST", path="monitors/{name}/test", run=lambda params: monitors.test(params.name),
                  params=models.Named, answer=answers.AlertSent, scope="admin", summary="Send a test alert."),
    )  # fmt: skip


def _data(store: StoreWithCopies, settings: Settings, prices: Prices) -> tuple[Operation, ...]:
    both: tuple[Literal["GET", "POST"], ...] = ("GET", "POST")
    return (
        *(Operation(method=method, path="export", run=partial(export_archive, store), params=models.Export,
                    files=("application/x-tar",), summary="Every view as Parquet or JSON lines, in one tar.")
          for method in both),
        Operation(method="GET", path="export/traces", params=models.TraceFile,
                  files=("application/vnd.apache.parquet",),
                  run=partial(traces_file, store, max_rows=settings.collector.sql_max_rows),
                  summary="The filtered list of traces as Parquet."),
        _get("export/evaluations", lambda params: evaluation_events(store, params.given()),
             "Verdicts as `gen_ai.evaluation.result` events: a body for any OTLP receiver of logs (JSON).",
             models.Events, answers.Events),
        *(Operation(method=method, path="snapshot", run=partial(snapshot_file, store), scope="admin",
                    files=("application/octet-stream",), summary="A consistent copy of the database.")
          for method in both),
        Operation(method="POST", path="prune", params=models.Prune, answer=answers.Pruned,
                  run=partial(pruned, store, also={"anchors": forget_anchors}),
                  scope="admin", summary="Delete what is older than an age, everything of a service, or of a person."),
        Operation(method="POST", path="remap", run=partial(remap_all, store, price=prices.settle), scope="admin",
                  answer=answers.Remapped, summary="Derive the canonical columns again from the raw attributes."),
    )  # fmt: skip


def _writes(
    store: Store, catalog: Catalog, force: Force, wake: Callable[[], None], mask: writes.Mask
) -> tuple[Operation, ...]:
    evaluate = partial(writes.force, queue=force, known=catalog.online, wake=wake)
    return (
        Operation(method="POST", path="labels", run=partial(writes.label, store, mask=mask), params=models.Label,
                  answer=answers.Done, scope="admin", summary="A person's verdict."),
        Operation(method="POST", path="scores", run=partial(writes.score, store, mask=mask), params=models.Score,
                  answer=answers.Done, scope="ingest", bound=True, summary="Feedback on a trace."),
        Operation(method="POST", path="evaluate", run=evaluate, params=models.Evaluate, answer=answers.Queued,
                  scope="admin", summary="Evaluate one trace now."),
    )  # fmt: skip
