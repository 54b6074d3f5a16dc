"""`GET traces/{trace_id}/pytest`: a stored trace as a regression test that runs offline."""

from __future__ import annotations

import pprint
from typing import Any

from ragpulse_collector.analysis.cases import case_of
from ragpulse_collector.api.models import OneTrace
from ragpulse_collector.api.trace import unit_of
from ragpulse_collector.store import Store

_TEXT = '''"""Regression test made from trace {trace_id} ({when}).

It fails as the trace failed. Let `answer` call your application, fix it, and the test passes.
"""

import pytest

from ragpulse_evaluators import Case, evaluate_sync

CASE = Case.model_validate(
{case}
)
CHECKS = {checks}  # evaluator -> the least acceptable normalized score


def answer(query, contexts):
    """Return what your application answers now; the recorded answer stands here until you replace it."""
    return CASE.response


@pytest.mark.parametrize("name", CHECKS)
def test_trace_{short}(name):
    case = CASE.model_copy(update={{"response": answer(CASE.query, CASE.contexts)}})
    (result,) = evaluate_sync([case], [name])[name]
    assert result.status == "ok", result.explanation
    assert result.normalized >= CHECKS[name], result.explanation
'''
OFFLINE = ("groundedness", "citation_check", "context_utilization")
LEAST = 0.5


def pytest_case(store: Store, params: OneTrace) -> dict[str, Any]:
    """Answer the operation; raises LookupError where the trace is gone or not complete."""
    trace_id = params.trace_id
    span, request_time = unit_of(store, trace_id)
    case = case_of(store, trace_id.hex, f"{span:016x}", request_time=request_time)
    if case is None:
        raise LookupError(f"the spans of trace {trace_id.hex} are past the retention")
    scored = store.read(
        "SELECT DISTINCT evaluator FROM raw.scores WHERE trace_id = $id AND status = 'ok' ORDER BY 1", {"id": trace_id}
    ).rows
    checks = {name: LEAST for (name,) in scored if name in OFFLINE} or {"groundedness": LEAST}
    kept = case.model_dump(include={"query", "response", "contexts", "reference"}, exclude_none=True)
    kept["contexts"] = [{"id": one["id"], "text": one["text"]} for one in kept.get("contexts") or ()]
    short = trace_id.hex[:8]
    text = _TEXT.format(
        trace_id=trace_id.hex,
        when=request_time.isoformat(timespec="seconds") + "Z",
        case=pprint.pformat(kept, indent=4, width=110, sort_dicts=False),
        checks=checks,
        short=short,
    )
    return {"filename": f"test_trace_{short}.py", "text": text}
