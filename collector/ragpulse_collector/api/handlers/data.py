"""Data in (labels, scores, evaluations by hand), data out (SQL, exports, snapshots, events), clean-up.

No path comes from a client.
"""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.api.copies import Copies, Download
from ragpulse_collector.api.drafts import Evaluate, Label, Prune, Score
from ragpulse_collector.api.handlers.trace import unit_of
from ragpulse_collector.api.handlers.traces import Listed, list_sql
from ragpulse_collector.api.models import Events, Export, Sql, TraceFile
from ragpulse_collector.api.params import Params
from ragpulse_collector.conventions.bodies import derive
from ragpulse_collector.instants import unix_ns
from ragpulse_collector.records import SpanBatch
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Rows, Store
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.protocol import Transaction, utc_now
from ragpulse_collector.store.queries.forgotten import is_forgotten
from ragpulse_collector.store.queries.scores import EVENTS
from ragpulse_collector.store.queries.trace_lists import with_scores
from ragpulse_collector.store.queries.traces import is_bound
from ragpulse_collector.store.retention import Forget, Subject, forget, prune, prune_service
from ragpulse_collector.store.rows import binding_text


def snapshot_file(store: Store, copies: Copies, params: Params) -> Download:
    """Answer `GET snapshot`: the whole database as one file."""
    del params
    return copies.make(lambda folder: store.snapshot(folder / "ragpulse.duckdb"), "application/octet-stream")


def export_archive(store: Store, copies: Copies, params: Export) -> Download:
    """Answer `GET export`: every view as Parquet or JSON lines, in one tar."""

    def write(folder: Path) -> Path:
        archive = folder / "ragpulse.tar"
        with tarfile.open(archive, "w") as tar:
            for path in store.export(folder / "views", format=params.format):
                tar.add(path, arcname=path.name)
                path.unlink()
        return archive

    return copies.make(write, "application/x-tar")


def traces_file(
    store: Store, copies: Copies, params: TraceFile, lead: Callable[[], str] = str, *, max_rows: int
) -> Download:
    """Answer `GET export/traces`: the traces of `GET traces` as Parquet; raises Invalid."""
    rows = list_sql(store, params, lead, max_rows=max_rows)
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


def pruned(store: Store, params: Prune, *, also: Mapping[str, Forget]) -> PrunedRows:
    """Answer `POST prune`: delete requests older than `older_than`, all of a `service`, or all of a person."""
    actor, dry_run = params.caller.actor, params.dry_run
    subjects: dict[Subject, object] = {"user": params.user, "session": params.session, "trace": params.trace}
    for subject, identity in subjects.items():
        if identity is not None:
            deleted = forget(store, subject, str(identity), also=also, dry_run=dry_run, actor=actor)
            if deleted and not dry_run:
                store.purge()
            return PrunedRows(deleted, out_of_reach=OUT_OF_REACH)
    if params.service:
        return PrunedRows(prune_service(store, params.service, dry_run=dry_run, actor=actor).rows)
    cutoff = utc_now() - timedelta(seconds=params.older_than or 0.0)
    deletion = prune(store, older_than=cutoff, dry_run=dry_run, actor=actor)
    return PrunedRows(deletion.rows, deletion.cutoff)


@dataclass(frozen=True, slots=True)
class Remapped:
    """The numbers of read and of changed spans."""

    spans: int
    changed: int


def remap_all(store: Store, params: Params, *, price: Callable[[SpanBatch], None] | None) -> Remapped:
    """Answer `POST remap`: derive the canonical columns again from the raw attributes."""
    del params
    return Remapped(*remap(store, derive, price=price))


ARROW = "application/vnd.apache.arrow.stream"


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


def sql(store: Store, settings: CollectorSettings, params: Sql) -> Table | Response:
    """Answer `POST sql`; raises Invalid or Refused with the reason, or TooSlow."""
    rows = store.run_user_sql(
        params.query, params.params, timeout_s=settings.sql_timeout_s, max_rows=settings.sql_max_rows
    )
    if ARROW in params.caller.accept:
        return _arrow(rows)
    return Table(list(rows.columns), [list(row) for row in rows.rows], rows.truncated, list(rows.types))


def _arrow(rows: Rows) -> Response:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise Invalid("Arrow answers need pyarrow in the collector: pip install 'ragpulse[arrow]'") from error
    columns = list(zip(*rows.rows, strict=True)) if rows.rows else [() for _ in rows.columns]
    table = pyarrow.table(dict(zip(rows.columns, map(list, columns), strict=True)))
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
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


def evaluation_events(store: Store, params: Events) -> LogBody:
    """Answer `GET export/evaluations`: an OTLP/JSON body of log records for any `/v1/logs`.

    `from` (default an hour ago) and `to` are times of evaluation, not of the request. The answer holds the oldest
    `limit` (10,000) events. The next request starts at the last `timeUnixNano`; events of this instant come again.
    Skipped evaluations are no events.
    """
    now = utc_now()
    limits = {
        "first": params.instant(params.from_, now) or now - timedelta(hours=1),
        "last": params.instant(params.to, now) or now,
        "most": min(_MAX_EVENTS, params.limit or _MAX_EVENTS),
        "evaluator": params.evaluator,
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
Mask = Callable[[str], str]
"""Masks a text that a person typed."""


def label(store: Store, params: Label, *, mask: Mask) -> Done:
    """Answer `POST labels`: a person's verdict on an evaluator's question; raises NotFound."""
    unit, request_time = unit_of(store, params.trace_id)
    span = unit if params.span_id is None else params.span_id
    score = float(bool(params.passing)) if params.score is None else params.score
    passing = score >= 0.5 if params.passing is None else params.passing
    comment, annotator = _masked(params.comment, mask), _masked(params.annotator, mask) or "page"
    key = (params.trace_id.hex, f"{span:016x}", request_time)
    verdict = (params.evaluator, score, passing, comment, annotator, params.label_pi)
    store.write(lambda tx: tx.append("labels", _LABEL_COLUMNS, [(*key, *verdict, tx.at)])).result()
    return Done()


def score(store: Store, params: Score, *, mask: Mask) -> Done:
    """Answer `POST scores`: feedback on a trace, the same as `ragpulse.feedback` sends.

    Feedback about a trace that was deleted with a person's data is not stored.
    """
    if not is_bound(store, params.trace_id, params.caller.binding):
        raise NotFound(f"trace {params.trace_id.hex} is not of a service that the key is bound to")
    span = None if params.span_id is None else f"{params.span_id:016x}"
    name, text = mask(params.name), _masked(params.label, mask)
    comment = _masked(params.comment or params.explanation, mask)
    key = (uuid.uuid4().hex, params.trace_id.hex, span)
    value = (name, params.score, text, comment, "human", binding_text(params.caller.binding))

    def work(tx: Transaction) -> None:
        if not is_forgotten(tx, params.trace_id.hex):
            tx.append("feedback", _FEEDBACK_COLUMNS, [(*key, tx.at, tx.at, *value)])

    store.write(work).result()
    return Done()


@dataclass(frozen=True, slots=True)
class Queued:
    """Queued evaluations."""

    queued: int
    ok: bool = True


def force(
    params: Evaluate,
    *,
    queue: Callable[[str, str | None, Sequence[str]], int],
    check_evaluator: Callable[[str], object],
    wake: Callable[[], None],
) -> Queued:
    """Answer `POST evaluate`: run evaluators on one trace now. The stored pi stays, so estimates stay unbiased.

    `queue` is the sampler's `force`. Raises Invalid or NotFound for an unknown evaluator or trace.
    """
    for name in params.evaluators:
        check_evaluator(name)
    span = None if params.span_id is None else f"{params.span_id:016x}"
    queued = queue(params.trace_id.hex, span, params.evaluators)
    wake()
    return Queued(queued)


def _masked(text: str | None, mask: Mask) -> str | None:
    return None if text is None else mask(text)
