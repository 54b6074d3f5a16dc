"""Data out and clean-up: users' SQL, exports and snapshots, events, prune, remap. No path comes from a client."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.api.drafts import Prune
from ragpulse_collector.api.handlers.traces import list_sql
from ragpulse_collector.api.models import Export, Sql, TraceFile
from ragpulse_collector.api.params import Params
from ragpulse_collector.conventions import remap as derive
from ragpulse_collector.records import SpanBatch
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import AnyStore, Rows, Store
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.queries.scores import EVENTS
from ragpulse_collector.store.queries.trace_answers import with_scores
from ragpulse_collector.store.retention import Forget, Subject, forget, prune, prune_service
from ragpulse_collector.store.rows import utc_now


@dataclass(frozen=True)
class Download:
    """A file of one answer; the sender calls `discard` afterwards."""

    path: Path
    media_type: str

    def discard(self) -> None:
        """Delete the file and its folder."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def snapshot_file(store: AnyStore, params: Params) -> Download:
    """Answer `GET snapshot`: the whole database as one file."""
    del params
    folder = Path(tempfile.mkdtemp(prefix="ragpulse-snapshot-"))
    return Download(store.snapshot(folder / "ragpulse.duckdb"), "application/octet-stream")


def export_archive(store: AnyStore, params: Export) -> Download:
    """Answer `GET export`: every view as Parquet or JSON lines, in one tar."""
    folder = Path(tempfile.mkdtemp(prefix="ragpulse-export-"))
    archive = folder / "ragpulse.tar"
    with tarfile.open(archive, "w") as tar:
        for path in store.export(folder / "views", format=params.format):
            tar.add(path, arcname=path.name)
            path.unlink()
    return Download(archive, "application/x-tar")


def traces_file(store: AnyStore, params: TraceFile, *, max_rows: int) -> Download:
    """Answer `GET export/traces`: the traces of `GET traces` as Parquet; raises ValueError."""
    sql, parameters = _by_ids(store, params, max_rows) if params.where else list_sql(params, max_rows=max_rows)
    folder = Path(tempfile.mkdtemp(prefix="ragpulse-traces-"))
    try:
        return Download(store.parquet(folder / "traces.parquet", sql, parameters), "application/vnd.apache.parquet")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _by_ids(store: AnyStore, params: TraceFile, max_rows: int) -> tuple[str, dict[str, Any]]:
    """Return what `list_sql` returns; the `where` runs here, under the limits of users' SQL."""
    sql, parameters = list_sql(params, max_rows=max_rows)
    ids = store.limited().read(f"SELECT trace_id FROM ({sql})", parameters).rows
    return with_scores("SELECT unnest($ids::VARCHAR[])"), {"ids": [row[0] for row in ids]}


OUT_OF_REACH = [
    "snapshots, exports, datasets in files and copies before a migration (NAME.before-v*) that were made earlier",
    "the bytes of a file until `ragpulse vacuum` has rewritten it; those of a lake until its snapshots expire",
]
"""The data that `prune` of a person cannot delete."""


def pruned(store: AnyStore, params: Prune, *, also: Mapping[str, Forget]) -> dict[str, Any]:
    """Answer `POST prune`: delete requests older than `older_than`, all of a `service`, or all of a person."""
    options: dict[str, Any] = {"dry_run": params.dry_run, "actor": params.caller.actor}
    subjects: dict[Subject, Any] = {"user": params.user, "session": params.session, "trace": params.trace}
    for subject, identity in subjects.items():
        if identity is not None:
            deleted = forget(store, subject, str(identity), also=also, **options)
            if deleted and not params.dry_run:
                store.purge()
            return {"cutoff": None, "deleted": deleted, "out_of_reach": OUT_OF_REACH}
    if params.service:
        return {"cutoff": None, "deleted": prune_service(store, params.service, **options).rows}
    cutoff = utc_now() - timedelta(seconds=params.older_than or 0.0)
    deletion = prune(store, older_than=cutoff, **options)
    return {"cutoff": deletion.cutoff, "deleted": deletion.rows}


def remap_all(store: Store, params: Params, *, price: Callable[[SpanBatch], None] | None) -> dict[str, Any]:
    """Answer `POST remap`: derive the canonical columns again from the raw attributes."""
    del params
    spans, changed = remap(store, derive, price=price)
    return {"spans": spans, "changed": changed}


ARROW = "application/vnd.apache.arrow.stream"


def sql(store: Store, settings: CollectorSettings, params: Sql) -> Any:
    """Answer `POST sql`; raises ValueError or Refused with the reason, or TimeoutError."""
    rows = store.run_user_sql(
        params.query, params.params, timeout_s=settings.sql_timeout_s, max_rows=settings.sql_max_rows
    )
    if ARROW in params.caller.accept:
        return _arrow(rows)
    return {"columns": list(rows.columns), "rows": [list(row) for row in rows.rows], "truncated": rows.truncated}


def _arrow(rows: Rows) -> Any:
    from starlette.responses import Response

    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise ValueError("Arrow answers need pyarrow in the collector: pip install 'ragpulse[arrow]'") from error
    columns = list(zip(*rows.rows, strict=True)) if rows.rows else [() for _ in rows.columns]
    table = pyarrow.table(dict(zip(rows.columns, map(list, columns), strict=True)))
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


_MAX_EVENTS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def evaluation_events(store: Store, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `GET export/evaluations`: an OTLP/JSON body of log records for any `/v1/logs`.

    `from` (default an hour ago) and `to` are times of evaluation, not of the request. The answer holds the oldest
    `limit` (10,000) events. The next request starts at the last `timeUnixNano`; events of this instant come again. Each
    record is in the context of the evaluated span. Skipped evaluations are no events. Raises ValueError.
    """
    now = utc_now()
    limits = {
        "first": instant(params.get("from"), now=now) or now - timedelta(hours=1),
        "last": instant(params.get("to"), now=now) or now,
        "most": min(_MAX_EVENTS, int(params.get("limit") or _MAX_EVENTS)),
        "evaluator": params.get("evaluator") or None,
    }
    records = [_record(row) for row in store.read(f"{EVENTS} ORDER BY created_at LIMIT $most", limits).dicts()]
    scope = {"scope": {"name": "ragpulse"}, "logRecords": records}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "ragpulse"}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    time_ns = (row["created_at"].replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    attributes = {name: row[column] for name, column in _ATTRIBUTES.items() if row[column] is not None}
    if row["status"] != "ok":
        attributes["error.type"] = row["status"]
    return {
        "timeUnixNano": str(time_ns),
        "eventName": "gen_ai.evaluation.result",
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "attributes": [{"key": name, "value": _value(value)} for name, value in attributes.items()],
    }


def _value(value: Any) -> dict[str, Any]:
    kind = "boolValue" if isinstance(value, bool) else "doubleValue" if isinstance(value, float) else "stringValue"
    return {kind: value}
