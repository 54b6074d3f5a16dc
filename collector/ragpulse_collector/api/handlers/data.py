"""Data in (labels, scores, evaluations by hand, datasets), data out (SQL, exports, snapshots, events), clean-up.

No path comes from a client.
"""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.selection import instant, iso
from ragpulse_collector.api.copies import Copies, Download
from ragpulse_collector.api.drafts import DatasetDraft, Evaluate, Label, Prune, Score
from ragpulse_collector.api.handlers.trace import unit_of
from ragpulse_collector.api.handlers.traces import list_sql, trace_list
from ragpulse_collector.api.models import ById, Export, Sql, TraceFile
from ragpulse_collector.api.params import Params
from ragpulse_collector.conventions.bodies import derive
from ragpulse_collector.instants import unix_ns
from ragpulse_collector.records import SpanBatch
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import AnyStore, Rows, Store
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.protocol import Transaction, utc_now
from ragpulse_collector.store.queries import datasets as stored
from ragpulse_collector.store.queries.forgotten import is_forgotten
from ragpulse_collector.store.queries.scores import EVENTS
from ragpulse_collector.store.queries.trace_answers import with_scores
from ragpulse_collector.store.queries.traces import is_bound, trace_rows
from ragpulse_collector.store.retention import Forget, Subject, forget, prune, prune_service
from ragpulse_collector.store.rows import binding_text


def snapshot_file(store: AnyStore, copies: Copies, params: Params) -> Download:
    """Answer `GET snapshot`: the whole database as one file."""
    del params
    return copies.make(lambda folder: store.snapshot(folder / "ragpulse.duckdb"), "application/octet-stream")


def export_archive(store: AnyStore, copies: Copies, params: Export) -> Download:
    """Answer `GET export`: every view as Parquet or JSON lines, in one tar."""

    def write(folder: Path) -> Path:
        archive = folder / "ragpulse.tar"
        with tarfile.open(archive, "w") as tar:
            for path in store.export(folder / "views", format=params.format):
                tar.add(path, arcname=path.name)
                path.unlink()
        return archive

    return copies.make(write, "application/x-tar")


def traces_file(store: AnyStore, copies: Copies, params: TraceFile, *, max_rows: int) -> Download:
    """Answer `GET export/traces`: the traces of `GET traces` as Parquet; raises Invalid."""
    sql, parameters = _by_ids(store, params, max_rows) if params.where else list_sql(params, max_rows=max_rows)
    return copies.make(
        lambda folder: store.parquet(folder / "traces.parquet", sql, parameters), "application/vnd.apache.parquet"
    )


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
    """Answer `POST sql`; raises Invalid or Refused with the reason, or TooSlow."""
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


def evaluation_events(store: Store, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `GET export/evaluations`: an OTLP/JSON body of log records for any `/v1/logs`.

    `from` (default an hour ago) and `to` are times of evaluation, not of the request. The answer holds the oldest
    `limit` (10,000) events. The next request starts at the last `timeUnixNano`; events of this instant come again. Each
    record is in the context of the evaluated span. Skipped evaluations are no events. Raises Invalid.
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
    attributes = {name: row[column] for name, column in _ATTRIBUTES.items() if row[column] is not None}
    if row["status"] != "ok":
        attributes["error.type"] = row["status"]
    return {
        "timeUnixNano": str(unix_ns(row["created_at"])),
        "eventName": "gen_ai.evaluation.result",
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "attributes": [{"key": name, "value": _value(value)} for name, value in attributes.items()],
    }


def _value(value: Any) -> dict[str, Any]:
    kind = "boolValue" if isinstance(value, bool) else "doubleValue" if isinstance(value, float) else "stringValue"
    return {kind: value}


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


def label(store: Store, params: Label, *, mask: Mask) -> dict[str, Any]:
    """Answer `POST labels`: a person's verdict on an evaluator's question; raises NotFound."""
    unit, request_time = unit_of(store, params.trace_id)
    span = unit if params.span_id is None else params.span_id
    score = float(bool(params.passing)) if params.score is None else params.score
    passing = score >= 0.5 if params.passing is None else params.passing
    comment, annotator = _masked(params.comment, mask), _masked(params.annotator, mask) or "page"
    key = (params.trace_id.hex, f"{span:016x}", request_time)
    verdict = (params.evaluator, score, passing, comment, annotator, params.label_pi)
    store.write(lambda tx: tx.append("labels", _LABEL_COLUMNS, [(*key, *verdict, tx.at)])).result()
    return {"ok": True}


def score(store: Store, params: Score, *, mask: Mask) -> dict[str, Any]:
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
    return {"ok": True}


def force(
    params: Evaluate,
    *,
    queue: Callable[[str, str | None, Sequence[str]], int],
    check_evaluator: Callable[[str], object],
    wake: Callable[[], None],
) -> dict[str, Any]:
    """Answer `POST evaluate`: run evaluators on one trace now. The stored pi stays, so estimates stay unbiased.

    `queue` is the sampler's `force`. Raises Invalid or NotFound for an unknown evaluator or trace.
    """
    for name in params.evaluators:
        check_evaluator(name)
    span = None if params.span_id is None else f"{params.span_id:016x}"
    queued = queue(params.trace_id.hex, span, params.evaluators)
    wake()
    return {"ok": True, "queued": queued}


def _masked(text: str | None, mask: Mask) -> str | None:
    return None if text is None else mask(text)


_ITEM_FIELDS = ("query", "response", "trace_id", "latency_ms", "cost_usd")


def dataset_list(store: Store) -> dict[str, Any]:
    """Answer `GET datasets`."""
    times = ("created_at", "changed_at")
    return {"datasets": [row | {key: iso(row[key]) for key in times} for row in stored.datasets(store)]}


def dataset(store: Store, params: ById) -> dict[str, Any]:
    """Answer `GET datasets/{id}`; raises NotFound."""
    items = stored.dataset_items(store, params.id)
    if not items:
        raise NotFound(f"there is no dataset {params.id!r}")
    return {"name": params.id, "items": items}


def fill_dataset(store: Store, params: DatasetDraft) -> dict[str, Any]:
    """Answer `POST datasets/{id}`: add items, named traces, or the first `limit` that match the filters.

    Raises Invalid where none of them has a question.
    """
    items, more = [item.model_dump() for item in params.items], False
    if not items:
        rows, more = _chosen(store, params)
        items = [_item(row) for row in rows if row["query"]]
    if not items:
        raise Invalid("no trace with a question matches: choose others, or send `items`")
    new = store.write(lambda tx: stored.add_items(tx, params.id, items)).result()
    return {"name": params.id, "added": len({item["query"] for item in items}), "new": new, "more": more}


def delete_dataset(store: Store, params: ById) -> dict[str, Any]:
    """Answer `DELETE datasets/{id}`; raises NotFound."""
    dataset(store, params)
    store.write(lambda tx: stored.delete_dataset(tx, params.id)).result()
    return {"ok": True}


def _chosen(store: Store, params: DatasetDraft) -> tuple[list[dict[str, Any]], bool]:
    if params.trace_ids:
        return trace_rows(store, [trace_id.hex for trace_id in params.trace_ids]), False
    answer = trace_list(store, params)
    return answer["traces"], answer["next"] is not None


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item in the form of `ragpulse freeze`; readers take its documents from the stored trace."""
    response = None if row.get("error") else row["response"]
    return {
        **{key: row[key] for key in _ITEM_FIELDS},
        "response": response,
        "at": str(row["start_time"]),
        "retrieved": None,
    }
