"""Data in (labels, scores, evaluations by hand), data out (SQL, exports, snapshots, events), clean-up.

No path comes from a client.
"""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.analysis.overview import DEMO_SERVICE
from ragpulse_collector.api.copies import Copies, Download
from ragpulse_collector.api.models import Range, TraceChoice
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import (
    Caller,
    Count,
    Duration,
    EvaluatorName,
    Mask,
    Names,
    SpanId,
    Text,
    TraceId,
    Unit,
)
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.conventions.bodies import derive
from ragpulse_collector.evaluation import Worker
from ragpulse_collector.instants import unix_ns
from ragpulse_collector.operations.trace import unit_of
from ragpulse_collector.operations.traces import Listed, list_sql
from ragpulse_collector.refusals import Conflict, Invalid, NotFound
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Prices, Rows, Store
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.protocol import Transaction, utc_now
from ragpulse_collector.store.queries.forgotten import is_forgotten
from ragpulse_collector.store.queries.health import spans_of_service
from ragpulse_collector.store.queries.scores import EVENTS, FEEDBACK
from ragpulse_collector.store.queries.trace_lists import with_scores
from ragpulse_collector.store.queries.traces import is_bound
from ragpulse_collector.store.retention import Forget, Subject, forget, prune, prune_service
from ragpulse_collector.store.rows import binding_text
from ragpulse_collector.topics.forgetting import forget_texts


@operation("GET snapshot", scope="admin", files=("application/octet-stream",))
@operation("POST snapshot", scope="admin", files=("application/octet-stream",))
def snapshot_file(store: Store, copies: Copies, /) -> Download:
    """A consistent copy of the database."""
    return copies.make(lambda folder: store.snapshot(folder / "ragpulse.duckdb"), "application/octet-stream")


@operation("GET export", files=("application/x-tar",))
@operation("POST export", files=("application/x-tar",))
def export_archive(store: Store, copies: Copies, /, format: Literal["parquet", "jsonl"] = "parquet") -> Download:
    """Every view as Parquet or JSON lines, in one tar."""

    def write(folder: Path) -> Path:
        archive = folder / "ragpulse.tar"
        with tarfile.open(archive, "w") as tar:
            for path in store.export(folder / "views", format=format):
                tar.add(path, arcname=path.name)
                path.unlink()
        return archive

    return copies.make(write, "application/x-tar")


@operation("GET export/traces", files=("application/vnd.apache.parquet",))
def traces_file(
    store: Store,
    copies: Copies,
    lead: Lead,
    settings: Settings,
    /,
    params: TraceChoice,
    format: Literal["parquet"] = "parquet",
) -> Download:
    """The filtered list of traces as Parquet.

    Raises Invalid.
    """
    del format
    rows = list_sql(store, lead, params, max_rows=settings.collector.sql_max_rows)
    if params.where:
        rows = _by_ids(store, rows)
    return copies.make(
        lambda folder: store.parquet(folder / "traces.parquet", rows.sql, rows.parameters),
        "application/vnd.apache.parquet",
    )


def _by_ids(store: Store, rows: Listed) -> Listed:
    """Return the same traces by their ids; the `where` runs here, under the limits of users' SQL."""
    ids = store.limited().read(f"SELECT trace_id FROM ({rows.sql})", rows.parameters).values
    return Listed(with_scores("SELECT unnest($ids::VARCHAR[])"), {"ids": ids})


ARROW = "application/vnd.apache.arrow.stream"
OUT_OF_REACH = [
    "snapshots, exports, datasets in files and copies before a migration (NAME.before-v*) that were made earlier",
    "the bytes of a file until `ragpulse vacuum` has rewritten it; those of a lake until its snapshots expire",
]
"""The data that `prune` of a person cannot delete."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Deleted rows by table."""

    deleted: dict[str, int]


@dataclass(frozen=True, slots=True)
class PrunedRows(DeletedRows):
    """The deleted rows, and the time up to which traces were deleted."""

    cutoff: datetime | None = None
    out_of_reach: list[str] = field(default_factory=list)
    """Places of copies that a prune of a person does not delete."""


ALSO: Mapping[str, Forget] = {"topics": forget_texts}
"""What else holds texts of traces."""


@operation("POST prune", scope="admin")
def pruned(
    store: Store,
    /,
    caller: Caller,
    older_than: Duration | None = None,
    service: str | None = None,
    user: Annotated[str | None, "A person: all traces of this `user_id`, and of its sessions."] = None,
    session: Annotated[str | None, "All traces of this `session_id`."] = None,
    trace: TraceId | None = None,
    dry_run: Annotated[bool, "Only count."] = False,
) -> PrunedRows:
    """Delete old traces, or everything of a service or a person."""
    if sum(choice is not None for choice in (older_than, service, user, session, trace)) != 1:
        raise Invalid("name one of older_than (30d, 12h), service, user, session and trace")
    subjects: dict[Subject, object] = {"user": user, "session": session, "trace": trace}
    for subject, identity in subjects.items():
        if identity is not None:
            deleted = forget(store, subject, str(identity), also=ALSO, dry_run=dry_run, actor=caller.actor)
            if deleted and not dry_run:
                store.purge()
            return PrunedRows(deleted, out_of_reach=OUT_OF_REACH)
    if service:
        return PrunedRows(prune_service(store, service, dry_run=dry_run, actor=caller.actor).rows)
    cutoff = utc_now() - timedelta(seconds=older_than or 0.0)
    deletion = prune(store, older_than=cutoff, dry_run=dry_run, actor=caller.actor)
    return PrunedRows(deletion.rows, deletion.cutoff)


@dataclass(frozen=True, slots=True)
class Remapped:
    """The numbers of read and of changed spans."""

    spans: int
    changed: int


@operation("POST remap", scope="admin")
def remap_all(store: Store, prices: Prices, /) -> Remapped:
    """Derive the canonical columns again from the raw attributes."""
    return Remapped(*remap(store, derive, price=prices.settle))


Cell = Any
"""A value of a column, of any SQL type."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a SELECT."""

    columns: list[str]
    rows: list[list[Cell]]
    truncated: bool
    types: list[str]
    """The SQL type of each column: JSON has times and decimals as texts."""


@operation("POST sql", files=(ARROW,), tool="sql")
def sql(
    store: Store,
    settings: Settings,
    /,
    caller: Caller,
    query: Annotated[str, Field(min_length=1), "Exactly one read-only SELECT."],
    params: list[Any] = [],
) -> Table | Response:
    """One read-only SELECT over the views traces, spans, contexts, scores, decisions, quality_daily.

    Raises Invalid or Refused with the reason, or TooSlow.
    """
    limits = settings.collector
    rows = store.run_user_sql(query, params, timeout_s=limits.sql_timeout_s, max_rows=limits.sql_max_rows)
    if ARROW in caller.accept:
        return _arrow(rows)
    return Table(list(rows.columns), [list(row) for row in rows.rows], rows.truncated, list(rows.types))


def _arrow(rows: Rows) -> Response:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise Invalid("Arrow answers need pyarrow in the collector: pip install 'ragpulse[arrow]'") from error
    columns = list(zip(*rows.rows, strict=True)) if rows.rows else [() for _ in rows.columns]
    try:
        table, sink = pyarrow.table(list(map(pyarrow.array, columns)), list(rows.columns)), pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    except (pyarrow.ArrowException, OverflowError) as error:
        raise Invalid(f"Arrow cannot hold this ({error}): cast the column to VARCHAR, or ask for JSON") from error
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


_MAX_EVENTS = 10_000
_ATTRIBUTES = {
    "gen_ai.evaluation.name": "evaluator",
    "gen_ai.evaluation.score.value": "score",
    "gen_ai.evaluation.score.label": "label",
    "gen_ai.evaluation.explanation": "explanation",
    "ragpulse.evaluation.status": "status",
    "ragpulse.evaluation.version": "version",
    "ragpulse.evaluation.judge": "judge",
    "ragpulse.evaluation.normalized": "normalized",
    "ragpulse.evaluation.passing": "passing",
    "ragpulse.evaluation.run_id": "run_id",
}


@dataclass(frozen=True, slots=True)
class ScoreEvent:
    """A verdict that was made."""

    trace_id: str
    span_id: str
    created_at: datetime
    status: str
    evaluator: str
    version: str | None
    judge: str | None
    score: float | None
    label: str | None
    explanation: str | None
    passing: bool | None
    normalized: float | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class KeyValue:
    """An attribute, as OTLP writes it: the key of the value is its type."""

    key: str
    value: dict[str, bool | float | str]

    @classmethod
    def of(cls, key: str, value: bool | float | str) -> KeyValue:
        """Return the attribute of a value."""
        kind = "boolValue" if isinstance(value, bool) else "doubleValue" if isinstance(value, float) else "stringValue"
        return cls(key, {kind: value})


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A verdict as a log record, in the context of the evaluated span."""

    timeUnixNano: str
    eventName: str
    traceId: str
    spanId: str
    attributes: list[KeyValue]


@dataclass(frozen=True, slots=True)
class ScopeLogs:
    """Log records of ragpulse."""

    logRecords: list[LogRecord]
    scope: dict[str, str] = field(default_factory=lambda: {"name": "ragpulse"})


@dataclass(frozen=True, slots=True)
class ResourceLogs:
    """Log records of the service `ragpulse`."""

    scopeLogs: list[ScopeLogs]
    resource: dict[str, list[KeyValue]] = field(
        default_factory=lambda: {"attributes": [KeyValue.of("service.name", "ragpulse")]}
    )


@dataclass(frozen=True, slots=True)
class LogBody:
    """A body for an OTLP receiver of logs."""

    resourceLogs: list[ResourceLogs]


@operation("GET export/evaluations")
def evaluation_events(
    store: Store, /, params: Range, evaluator: EvaluatorName | None = None, limit: Count | None = None
) -> LogBody:
    """Scores as `gen_ai.evaluation.result` events: a body for any OTLP receiver of logs (JSON).

    `from` (default an hour ago) and `to` are times of evaluation, not of the request. The answer holds the oldest
    `limit` (10,000) events. The next request starts at the last `timeUnixNano`; events of this instant come again.
    Skipped evaluations are no events.
    """
    now = utc_now()
    limits = {
        "first": params.instant(params.from_, now) or now - timedelta(hours=1),
        "last": params.instant(params.to, now) or now,
        "most": min(_MAX_EVENTS, limit or _MAX_EVENTS),
        "evaluator": evaluator,
    }
    events = store.read(f"{EVENTS} ORDER BY created_at LIMIT $most", limits).of(ScoreEvent)
    return LogBody([ResourceLogs([ScopeLogs([_record(event) for event in events])])])


def _record(event: ScoreEvent) -> LogRecord:
    time_ns = unix_ns(event.created_at)
    values = {name: getattr(event, column) for name, column in _ATTRIBUTES.items()}
    values["error.type"] = None if event.status == "ok" else event.status
    attributes = [KeyValue.of(name, value) for name, value in values.items() if value is not None]
    return LogRecord(str(time_ns), "gen_ai.evaluation.result", event.trace_id, event.span_id, attributes)


_LABEL_COLUMNS = (
    "trace_id", "span_id", "request_time", "evaluator", "score", "passing", "comment", "annotator", "label_pi",
    "created_at",
)  # fmt: skip
_FEEDBACK_COLUMNS = (
    "feedback_id", "trace_id", "span_id", "time", "received_at", "name", "score", "label", "explanation", "source",
    "binding",
)  # fmt: skip


@operation("POST labels", scope="admin")
def label(
    store: Store,
    mask: Mask,
    /,
    caller: Caller,
    trace_id: TraceId,
    evaluator: Text,
    span_id: SpanId | None = None,
    score: Unit | None = None,
    passing: bool | None = None,
    comment: Text | None = None,
    annotator: Text | None = None,
    label_pi: Annotated[float | None, Field(gt=0, le=1)] = None,
) -> Done:
    """A person's verdict.

    Raises NotFound. People label answers before an evaluator of that name scores any.
    """
    del caller
    if score is None and passing is None:
        raise Invalid("a label needs `score` (0..1) or `passing` (true or false)")
    unit, request_time = unit_of(store, trace_id)
    value = float(bool(passing)) if score is None else score
    key = (trace_id.hex, f"{unit if span_id is None else span_id:016x}", request_time)
    verdict = (evaluator, value, value >= 0.5 if passing is None else passing)
    person = (_masked(comment, mask), _masked(annotator, mask) or "page", label_pi)
    store.write(lambda tx: tx.append("labels", _LABEL_COLUMNS, [(*key, *verdict, *person, tx.at)])).result()
    return Done()


@operation("POST scores", scope="ingest", bound=True)
def score(
    store: Store,
    mask: Mask,
    /,
    caller: Caller,
    trace_id: TraceId,
    span_id: SpanId | None = None,
    name: Text = FEEDBACK,
    score: float | None = None,
    label: Text | None = None,
    comment: Text | None = None,
    explanation: Annotated[Text | None, "The same as `comment`."] = None,
) -> Done:
    """Feedback on a trace.

    The same as `ragpulse.feedback` sends. Feedback about a trace that was deleted with a person's data is not stored.
    """
    if score is None and label is None:
        raise Invalid("a score needs `score` (a number) or `label` (a text)")
    if not is_bound(store, trace_id, caller.binding):
        raise NotFound(f"trace {trace_id.hex} is not of a service that the key is bound to")
    key = (uuid.uuid4().hex, trace_id.hex, None if span_id is None else f"{span_id:016x}")
    text, remark = _masked(label, mask), _masked(comment or explanation, mask)
    value = (mask(name), score, text, remark, "human", binding_text(caller.binding))

    def work(tx: Transaction) -> None:
        if not is_forgotten(tx, trace_id.hex):
            tx.append("feedback", _FEEDBACK_COLUMNS, [(*key, tx.at, tx.at, *value)])

    store.write(work).result()
    return Done()


@dataclass(frozen=True, slots=True)
class Queued:
    """Queued evaluations."""

    queued: int
    ok: bool = True


@operation("POST evaluate", scope="admin")
def force(
    sampler: Sampler,
    catalog: Catalog,
    worker: Worker,
    /,
    trace_id: TraceId,
    evaluators: Annotated[Names, Field(min_length=1)],
    span_id: SpanId | None = None,
) -> Queued:
    """Evaluate one trace now.

    The stored pi stays, so estimates stay unbiased. Raises Invalid or NotFound for an unknown evaluator or trace.
    """
    for name in evaluators:
        catalog.online(name)
    queued = sampler.force(trace_id.hex, None if span_id is None else f"{span_id:016x}", evaluators)
    worker.wake()
    return Queued(queued)


def _masked(text: str | None, mask: Mask) -> str | None:
    return None if text is None else mask(text)


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    """The stored generated traffic."""

    service: str
    traces: int
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime


@operation("POST demo", scope="admin")
def load_demo(store: Store, /) -> DemoTraffic:
    """Make generated traffic of the last hours, as the service `demo`.

    Raises Conflict (409) where it is stored already. Evaluation follows.
    """
    from ragpulse_collector.demo.traffic import traffic, visits

    if spans_of_service(store, DEMO_SERVICE):
        raise Conflict("demo data is stored already: DELETE demo removes it")
    planned = visits()
    now = utc_now()
    for body in traffic(planned):
        store.submit(body).result()
    return DemoTraffic(DEMO_SERVICE, len(planned), now - max(visit.ago for visit in planned), now)


@operation("DELETE demo", scope="admin")
def remove_demo(store: Store, /, caller: Caller) -> DeletedRows:
    """Remove everything of the service `demo`; the audit records it."""
    return DeletedRows(prune_service(store, DEMO_SERVICE, actor=caller.actor).rows)
