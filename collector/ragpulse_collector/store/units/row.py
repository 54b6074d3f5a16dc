"""The columns that a trace takes from its spans, whether it is decided or not.

The relation of spans has `place`, an order in which the span that stands for the trace is the first.
"""

from __future__ import annotations

ASKS = "kind IN ('rag', 'agent', 'llm', 'retriever')"
"""Whether a decorator or a convention calls a span a request, whatever is known of its texts."""

WORK = f"max(CASE WHEN {ASKS} THEN 3 WHEN kind = 'embedding' THEN 2 ELSE 0 END)"
"""The most that the spans of a trace do: 3 they ask, 2 they embed, 0 neither."""
REQUEST = "n_units IS DISTINCT FROM 0"
"""The condition that a row of `traces` is a request; undecided ones have NULL. The others are called other roots."""
_AS_STATED = (
    "service", "environment", "name", "session_id", "user_id", "prompt_name", "prompt_version", "variant", "agent",
    "data_source", "index_version", "top_k",
)  # fmt: skip
OF_FIRST = (*_AS_STATED, "service_version", "tags", "metadata")
"""The columns of the first span with a value."""
OF_UNIT = ("finish_reason", "response_missing_reason")
"""The columns of the unit, else of the last model call."""


def together(own: str) -> str:
    """Return SQL for the columns over all spans of a trace; `own` is SQL for a column (`{}`) of its unit."""
    first = (f"arg_min({name}, place) AS {name}" for name in OF_FIRST)
    unit = (
        f"coalesce({own.format(name)}, arg_max_null({name}, start_time) FILTER (kind = 'llm')) AS {name}"
        for name in OF_UNIT
    )
    return f"""{", ".join((*first, *unit))}, {own.format("control_flow")} AS control_flow,
               arg_min(name, start_time) FILTER (kind = 'retriever') AS retriever,
               count(*)::INTEGER AS n_spans, min(upstream_pi) AS upstream_pi"""


def shown(trace: str, response: str) -> str:
    """Return SQL for these columns as `traces` has them; `trace` is a row of them, `response` its text."""
    names = (*_AS_STATED, "finish_reason", "control_flow", "retriever", "n_spans", "upstream_pi")
    return f"""{", ".join(f"{trace}.{name}" for name in names)}, {trace}.service_version AS release,
           {tag_list(f"{trace}.tags")} AS tags, {metadata_map(f"{trace}.metadata")} AS metadata,
           CASE WHEN {response} IS NULL THEN {trace}.response_missing_reason END AS response_missing_reason"""


def tag_list(column: str) -> str:
    """Return SQL for the tags that a span has as JSON."""
    return f"TRY_CAST(TRY_CAST({column} AS JSON) AS VARCHAR[])"


def metadata_map(column: str) -> str:
    """Return SQL for the metadata that a span has as JSON; values that are not text are their JSON."""
    return f"TRY_CAST(TRY_CAST({column} AS JSON) AS MAP(VARCHAR, VARCHAR))"
