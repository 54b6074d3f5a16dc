"""`POST sql`: one read-only SELECT, as JSON or as an Arrow stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Rows, Store

ARROW = "application/vnd.apache.arrow.stream"


def sql(store: Store, settings: CollectorSettings, params: Mapping[str, Any]) -> Any:
    """Answer the operation; raises ValueError or Refused with the reason, TimeoutError."""
    query, values = params.get("query"), params.get("params") or []
    if not isinstance(query, str) or not query.strip():
        raise ValueError('send {"query": "select ...", "params": []}')
    if not isinstance(values, list):
        raise ValueError("params is a list")
    rows = store.run_user_sql(query, values, timeout_s=settings.sql_timeout_s, max_rows=settings.sql_max_rows)
    if ARROW in str(params.get("_accept", "")):
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
