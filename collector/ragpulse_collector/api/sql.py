"""`POST sql`: one read-only SELECT, as JSON or as an Arrow stream."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.api.models import Sql
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Rows, Store

ARROW = "application/vnd.apache.arrow.stream"


def sql(store: Store, settings: CollectorSettings, params: Sql) -> Any:
    """Answer the operation; raises ValueError or Refused with the reason, TimeoutError."""
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
