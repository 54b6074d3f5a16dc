"""Failures: what kind of bad an answer is, by rules over what is stored. Derived when read: verdicts come later.

A trace has one kind, the first that holds. Kinds by verdicts know the newest verdict about its root.
"""

from __future__ import annotations

from dataclasses import dataclass

from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.queries.datasets import LEADS
from ragpulse_collector.store.views import COUNTED, IN_LISTS

FAILURE = "failure"
"""The name of the label."""
LEAD = f"""coalesce((SELECT substr(max(value), instr(max(value), ' ') + 1) FROM raw.meta WHERE key = '{LEADS}'),
    'groundedness')"""
"""The evaluator that leads, as SQL; the collector keeps when one began to."""
SLOW_MS = 20_000
_FAILS = "passing = false"
_CONTRADICTS = "passing IS NOT TRUE AND regexp_matches(explanation, ' here, [^.]* in the evidence')"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure: its words, its condition on a row of `traces`, and whose verdict it reads, as SQL."""

    words: str
    condition: str
    evaluator: str | None = None
    """Then the condition is one on a verdict."""


KINDS = {
    "error": Kind("failed with an error", "coalesce(error, false)"),
    "cut_off": Kind(
        "were cut off", "regexp_matches(lower(finish_reason), 'length|max_?(output_?)?tokens|truncat|incomplete')"
    ),
    "empty": Kind("were empty", "answer = 'empty'"),
    "no_context": Kind("had no context", "{nothing}"),
    "refused": Kind("were refused though contexts were found", "answer = 'refused' AND {something}"),
    "wrong_language": Kind("were in another language than the question", _FAILS, "'language'"),
    "contradiction": Kind("contradict numbers of their contexts", _CONTRADICTS, "'groundedness'"),
    "unused": Kind("use none of the contexts found", "normalized = 0", "'context_utilization'"),
    "unsupported": Kind("are not supported", _FAILS, LEAD),
    "slow": Kind(f"took longer than {SLOW_MS // 1000} s", f"latency_ms > {SLOW_MS}"),
}
"""In the order in which they lead."""
_FOUND = """trace_id::UUID IN (SELECT trace_id FROM raw.spans WHERE n_contexts IS NOT NULL AND {within}
    GROUP BY trace_id HAVING sum(n_contexts) {is})"""


def failure_of(first_to_last: str | None = None) -> str:
    """Return SQL for the kind of a row of `traces`; null for none. `first_to_last` limits verdicts by request time."""
    within = first_to_last or "true"
    near = "start_time >= $first - INTERVAL 1 DAY AND start_time < $last + INTERVAL 1 DAY" if first_to_last else "true"
    found = {
        "nothing": _FOUND.format(within=near, **{"is": "= 0"}),
        "something": _FOUND.format(within=near, **{"is": "> 0"}),
    }
    whens = []
    for name, kind in KINDS.items():
        condition = kind.condition.format(**found)
        if kind.evaluator:
            condition = f"trace_id::UUID IN ({_whose_verdict(kind.evaluator, condition, within)})"
        whens.append(f"WHEN {condition} THEN {literal(name)}")
    return f"CASE {' '.join(whens)} END"


def _whose_verdict(evaluator: str, condition: str, within: str) -> str:
    verdicts = f"evaluator = {evaluator} AND status = 'ok' AND {within}"
    unit = "hash(trace_id, span_id)"
    # Few verdicts meet the condition: only of their units the newest is looked for.
    return f"""
        SELECT any_value(trace_id) FROM {COUNTED} WHERE {verdicts} AND {IN_LISTS} AND source IN ('online', 'replay')
        AND {unit} IN (SELECT {unit} FROM {COUNTED} WHERE {verdicts} AND {condition})
        AND {unit} IN (SELECT hash(trace_id, unit_span_id) FROM raw.trace_facts WHERE latest)
        GROUP BY {unit} HAVING arg_max(coalesce({condition}, false), created_at)"""


def evaluators_before(kind: str | None) -> list[str]:
    """Return the evaluators, as SQL, whose verdicts tell that a trace is of this kind, or of none (None)."""
    names = list(KINDS)
    upto = names[: names.index(kind) + 1] if kind else names
    return [evaluator for name in upto if (evaluator := KINDS[name].evaluator)]
