"""The table of operations of the API and the pages, with their functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import Agreement, calibration
from ragpulse_collector.analysis.overview import DEMO_SERVICE
from ragpulse_collector.analysis.traffic import TOPIC_SHARE, check_evaluator, check_metric, topic_metrics
from ragpulse_collector.api import drafts, models
from ragpulse_collector.api.copies import Copies
from ragpulse_collector.api.handlers import data, datasets
from ragpulse_collector.api.handlers.health import CollectorStatus
from ragpulse_collector.api.handlers.rules import (
    EvaluatorList,
    RuleInForce,
    RuleList,
    RulePreview,
    delete_rule,
    evaluators,
    preview,
    rule_list,
    save_rule,
)
from ragpulse_collector.api.handlers.settings import ShownSettings, shown_settings
from ragpulse_collector.api.handlers.status import Status
from ragpulse_collector.api.handlers.topics import topic_operations
from ragpulse_collector.api.handlers.trace import TextFile, TraceParts, pytest_case, trace_detail, trace_page
from ragpulse_collector.api.handlers.traces import (
    SessionPage,
    SessionTurns,
    TracePage,
    session_detail,
    session_list,
    trace_list,
)
from ragpulse_collector.api.measures import measures
from ragpulse_collector.api.operations import Admin, AnyOperation, Operation, Operations
from ragpulse_collector.api.params import Params
from ragpulse_collector.app.replays import replay_operations
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.conventions.redaction import masking
from ragpulse_collector.evaluation import DriftWatch
from ragpulse_collector.evaluation.drift import BACK, DriftReport, Watched, forget_anchors
from ragpulse_collector.evaluation.judge_checking import JudgeChecker, StartedCheck
from ragpulse_collector.evaluation.judge_checks import JudgeChecks, checks_of
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.monitoring.digest import Digest
from ragpulse_collector.monitoring.listing import AlertSent, MonitorList, MonitorPreview, SavedMonitor
from ragpulse_collector.monitoring.targets import TargetStates
from ragpulse_collector.refusals import Conflict
from ragpulse_collector.sampling import Rules
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Prices, Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.health import spans_of_service
from ragpulse_collector.store.queries.scores import measured, met_evaluators
from ragpulse_collector.store.reading import outbox_folder
from ragpulse_collector.store.retention import prune_service
from ragpulse_collector.topics.forgetting import forget_texts

if TYPE_CHECKING:
    from ragpulse_collector.app.wiring import Components


def operations(components: Components) -> Operations:
    """Join each operation to its function."""
    store, settings, lead = components.store, components.started_with, components.lead
    mask, snapshots = masking(settings.collector.redact), Snapshots(store)
    table = (
        *_reads(store, settings, components.status, lead),
        *measures(store, lead=lead, snapshots=snapshots, least_users=settings.topics.least_users),
        _evaluators(store, components.catalog, components.rules, lead),
        *_rules(store, components.rules),
        *_writes(components, mask),
        *replay_operations(store, components.replays, lead, snapshots.clear),
        *_drift(components.drift),
        Operation("GET settings", partial(shown_settings, in_force=components.in_force, prices=components.price_table),
                  "The settings in force, where each was given, and TOML that gives them; without secrets.", Params,
                  ShownSettings),
        *_judge_checks(settings, components.catalog, components.checker),
        *_datasets(store, lead),
        *_monitors(components.monitors, components.targets),
        Operation("GET digest", lambda params: components.digests.of(params.query(utc_now())),
                  "A week in figures and sentences, against the week before.", models.DigestRange, Digest),
        *_data(store, settings, components.prices, lead),
        *topic_operations(store, components.refits, lead=lead, mask=mask, quoting=partial(_quoting, components)),
        *_demo(store),
    )  # fmt: skip
    check = partial(_check_names, components)
    return Operations(replace(operation, check=check) for operation in table)


def _check_names(components: Components, params: Params) -> None:
    """Check the metrics and evaluators of a request: an empty answer would look like a good one.

    The charts of monitors and targets are empty until the first score.
    """
    store, binding = components.store, params.caller.binding

    def met() -> set[str]:
        return {*met_evaluators(store, binding), *(() if binding else {*_watched(components), *topic_metrics(store)})}

    for metric in params.metrics():
        check_metric(metric, components.names(), met)
    for name in params.named_evaluators():
        check_evaluator(name, components.names(), met)


def _quoting(components: Components, topic: str) -> list[str]:
    """Return the rules, monitors and targets whose metric or conditions name a topic."""
    rules, targets = components.rules.effective(), components.started_with.target
    monitors = [one.settings for one in components.monitors.definitions]
    texts = [(f"rule {one.name!r}", (one.where, *(part.where for part in one.strata))) for one in rules]
    texts += [(f"monitor {one.name!r}", (one.where, one.metric)) for one in monitors]
    texts += [(f"target {one.metric!r}", (one.where, one.metric)) for one in targets]
    value, metric = f"""'{topic.replace("'", "''")}'""", f"{TOPIC_SHARE}:{topic}"
    return [owner for owner, own in texts if any(text and (value in text or text == metric) for text in own)]


def _watched(components: Components) -> set[str]:
    """Return the evaluators of monitors and targets."""
    monitored = (monitor.settings.metric for monitor in components.monitors.definitions)
    metrics = (*monitored, *(target.metric for target in components.started_with.target))
    families = (metric.partition(":")[::2] for metric in metrics)
    return {measured(family, name.partition("@")[0]) for family, name in families}


def _reads(store: Store, settings: Settings, status: Status, lead: Lead) -> tuple[AnyOperation, ...]:
    return (
        Operation("GET traces", partial(trace_list, store, lead=lead), "Traces with their scores.", models.TraceList,
                  TracePage, bound=True),
        Operation("GET traces/{trace_id}", partial(trace_detail, store, lead=lead), "One trace with all its data.",
                  models.TraceDetail, TraceParts, bound=True),
        Operation("GET traces/{trace_id}/html", partial(trace_page, store, lead=lead),
                  "One trace as a self-contained, redacted page.", models.OneTrace, TextFile, bound=True),
        Operation("GET traces/{trace_id}/pytest", partial(pytest_case, store), "A trace as a regression test.",
                  models.OneTrace, TextFile, bound=True),
        Operation("GET sessions", partial(session_list, store, lead=lead), "Conversations with their figures.",
                  models.SessionList, SessionPage),
        Operation("GET sessions/{id}", partial(session_detail, store), "The turns of a conversation, in order.",
                  models.ById, SessionTurns, slashes=True),
        Operation("GET status", status, "Received, rejected, evaluated and dropped, with reasons.", Params,
                  CollectorStatus),
        Operation("POST sql", partial(data.sql, store, settings.collector), "One read-only SELECT over the views.",
                  models.Sql, data.Table, files=(data.ARROW,)),
    )  # fmt: skip


def _evaluators(store: Store, catalog: Catalog, rules: Rules, lead: Lead) -> AnyOperation:
    def agreement(name: str) -> Agreement | None:
        query = models.Calibration(evaluator=name).query(utc_now())
        return next(iter(calibration(store, query, name).versions), None)

    run = partial(evaluators, store, describe=catalog.describe, rules=rules.effective, calibration=agreement, lead=lead)
    return Operation("GET evaluators", run, "The evaluators of this installation.", Params, EvaluatorList)


def _rules(store: Store, rules: Rules) -> tuple[AnyOperation, ...]:
    draft: dict[str, Any] = {"params": drafts.RuleDraft, "answer": RuleInForce}
    return (
        Operation("GET rules", partial(rule_list, store, rules), "The rules in force.", Params, RuleList),
        Operation("GET rules/preview", partial(preview, store, rules), "The selection and the cost of a rule.",
                  drafts.RuleDraft, RulePreview),
        Admin("POST rules", partial(save_rule, rules, replace=False), "Add a rule.", **draft),
        Admin("PUT rules/{name}", partial(save_rule, rules, replace=True), "Change a rule.", **draft),
        Admin("DELETE rules/{name}", partial(delete_rule, rules), "Remove a rule.", models.Named, Done),
    )  # fmt: skip


def _drift(drift: DriftWatch) -> tuple[AnyOperation, ...]:
    def report(params: models.Drift) -> DriftReport | Watched:
        query, back = params.query(drift.clock()), BACK if params.back is None else timedelta(seconds=params.back)
        return drift.report(params.evaluator, query, back=back) if params.evaluator else drift.watched(query, back=back)

    def freeze(params: drafts.AnchorDraft) -> DriftReport:
        return drift.freeze(params.evaluator, params.query(drift.clock()), n=params.n)

    return (
        Operation("GET drift", report, "Did the judge move, or the application?", models.Drift, DriftReport | Watched),
        Admin("POST drift/anchors", freeze, "Store judged answers to watch a judge by.", drafts.AnchorDraft,
              DriftReport),
        Admin("POST drift/run", lambda params: drift.run(params.evaluator),
              "Judge the stored answers again, without the recorded calls.", drafts.NamedEvaluator, DriftReport),
    )  # fmt: skip


def _judge_checks(settings: Settings, catalog: Catalog, checker: JudgeChecker) -> tuple[AnyOperation, ...]:
    return (
        Operation("GET judge/checks", lambda _: checks_of(settings, catalog.judge, checker.state),
                  "Reports of checks of judges, newest first, and how far a check is.", Params, JudgeChecks),
        Admin("POST judge/check", lambda params: checker.start(params.judge, params.max_usd),
              "Check a judge on labelled answers, in the background, as `ragpulse judge check` does.",
              drafts.CheckDraft, StartedCheck),
    )  # fmt: skip


def _datasets(store: Store, lead: Lead) -> tuple[AnyOperation, ...]:
    return (
        Operation("GET datasets", lambda _: datasets.dataset_list(store), "Datasets with their sizes.", Params,
                  datasets.DatasetList),
        Operation("GET datasets/{id}", partial(datasets.dataset, store), "The questions of a dataset.", models.ById,
                  datasets.Dataset),
        Admin("POST datasets/{id}", partial(datasets.fill_dataset, store, lead=lead),
              "Add traces or items to a dataset.", drafts.DatasetDraft, datasets.DatasetFilled),
        Admin("DELETE datasets/{id}", partial(datasets.delete_dataset, store), "Delete a dataset.", models.ById,
              Done),
    )  # fmt: skip


def _monitors(monitors: Monitors, targets: Targets) -> tuple[AnyOperation, ...]:
    definitions = monitors.definitions

    def save(params: drafts.MonitorDraft, *, replace: bool) -> SavedMonitor:
        return SavedMonitor.of(definitions.save(params.settings(), actor=params.caller.actor, replace=replace))

    def mute(params: drafts.Mute) -> SavedMonitor:
        return SavedMonitor.of(monitors.mute(params.name, params.for_, actor=params.caller.actor))

    def delete(params: models.Named) -> Done:
        definitions.delete(params.name, actor=params.caller.actor)
        return Done()

    draft: dict[str, Any] = {"params": drafts.MonitorDraft, "answer": SavedMonitor}
    return (
        Operation("GET monitors", lambda params: monitors.list(only_firing=params.only == "firing"),
                  "Monitors with state and history.", models.MonitorChoice, MonitorList),
        Operation("GET monitors/preview", lambda params: monitors.preview(params.settings()),
                  "How often a monitor would have fired, and the change that it can detect.", drafts.MonitorDraft,
                  MonitorPreview),
        Admin("POST monitors", partial(save, replace=False), "Make a monitor.", **draft),
        Admin("PUT monitors/{name}", partial(save, replace=True), "Change a monitor.", **draft),
        Admin("DELETE monitors/{name}", delete, "Delete a monitor.", models.Named, Done),
        Admin("POST monitors/{name}/mute", mute, "Send no messages until a time.", drafts.Mute, SavedMonitor),
        Operation("GET targets", lambda params: targets(params.query(utc_now())),
                  "Targets of metrics, and whether they are met.", models.Filters, TargetStates),
        Admin("POST monitors/{name}/test", lambda params: monitors.test(params.name), "Send a test alert.",
              models.Named, AlertSent),
    )  # fmt: skip


def _data(store: Store, settings: Settings, prices: Prices, lead: Lead) -> tuple[AnyOperation, ...]:
    copies = Copies(outbox_folder(store.path))
    views: dict[str, Any] = {"run": partial(data.export_archive, store, copies), "params": models.Export,
                             "files": ("application/x-tar",),
                             "summary": "Every view as Parquet or JSON lines, in one tar."}  # fmt: skip
    copy: dict[str, Any] = {"run": partial(data.snapshot_file, store, copies), "files": ("application/octet-stream",),
                            "summary": "A consistent copy of the database."}  # fmt: skip
    return (
        Operation("GET export", **views),
        Operation("POST export", **views),
        Operation("GET export/traces",
                  partial(data.traces_file, store, copies, lead=lead, max_rows=settings.collector.sql_max_rows),
                  "The filtered list of traces as Parquet.", models.TraceFile,
                  files=("application/vnd.apache.parquet",)),
        Operation("GET export/evaluations", partial(data.evaluation_events, store),
                  "Scores as `gen_ai.evaluation.result` events: a body for any OTLP receiver of logs (JSON).",
                  models.Events, data.LogBody),
        Admin("GET snapshot", **copy),
        Admin("POST snapshot", **copy),
        Admin("POST prune", partial(data.pruned, store, also={"anchors": forget_anchors, "topics": forget_texts}),
              "Delete old traces, or everything of a service or a person.", drafts.Prune,
              data.PrunedRows),
        Admin("POST remap", partial(data.remap_all, store, price=prices.settle),
              "Derive the canonical columns again from the raw attributes.", answer=data.Remapped),
    )  # fmt: skip


def _writes(components: Components, mask: data.Mask) -> tuple[AnyOperation, ...]:
    store = components.store
    evaluate = partial(data.force, queue=components.sampler.force, check_evaluator=components.catalog.online,
                       wake=components.worker.wake)  # fmt: skip
    return (
        Admin("POST labels", partial(data.label, store, mask=mask), "A person's verdict.", drafts.Label,
              Done),
        Operation("POST scores", partial(data.score, store, mask=mask), "Feedback on a trace.", drafts.Score,
                  Done, scope="ingest", bound=True),
        Admin("POST evaluate", evaluate, "Evaluate one trace now.", drafts.Evaluate, data.Queued),
    )  # fmt: skip


def _demo(store: Store) -> tuple[AnyOperation, ...]:
    return (
        Admin("POST demo", partial(_load_demo, store),
              "Make generated traffic of the last hours, as the service `demo`.", answer=DemoTraffic),
        Admin("DELETE demo", partial(_remove_demo, store), "Remove everything of the service `demo`.",
              answer=data.DeletedRows),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    """The stored generated traffic."""

    service: str
    traces: int
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime


def _load_demo(store: Store, params: Params) -> DemoTraffic:
    """Store the traffic; raises Conflict (409) where it is stored already. Evaluation follows."""
    from ragpulse_collector.demo.traffic import traffic, visits

    del params
    if spans_of_service(store, DEMO_SERVICE):
        raise Conflict("demo data is stored already: DELETE demo removes it")
    planned = visits()
    now = utc_now()
    for body in traffic(planned):
        store.submit(body).result()
    return DemoTraffic(DEMO_SERVICE, len(planned), now - max(visit.ago for visit in planned), now)


def _remove_demo(store: Store, params: Params) -> data.DeletedRows:
    """Delete the traces of the service with all their data; the audit records it."""
    return data.DeletedRows(prune_service(store, DEMO_SERVICE, actor=params.caller.actor).rows)
