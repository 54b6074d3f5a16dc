"""Rules: canonical policies, and conditions that are checked before anything relies on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragpulse_collector.refusals import NotFound
from ragpulse_collector.sampling import OFFLINE, Rule, Sampler
from ragpulse_collector.settings import RuleSettings, Stratum
from ragpulse_collector.store.queries.decisions import sampling_number

GOOD = (
    "service = 'helpdesk'",
    "error or feedback < 0",
    "top_score < 0.4 -- weak",
    "query ILIKE '%refund%'",
    "start_time > TIMESTAMP '2026-01-01'",
    "coalesce(cost_usd, 0) > 0.01 AND n_spans BETWEEN 2 AND 9",
    "variant IN ('a', 'b')",
)

BAD = (
    "", "1", "service", "nope = 1", "true; DROP TABLE traces", "true) OR EXISTS (SELECT 1", "(SELECT true)",
    "EXISTS (FROM traces)", "trace_id IN (SELECT trace_id FROM traces)", "count(*) > 1", "row_number() OVER () = 1",
    "true LIMIT 1", "true) UNION (SELECT true", "true GROUP BY 1", "random() < 0.5", "? = 1", "$1", "error = ",
    "read_text('/etc/passwd') IS NOT NULL", "service = 'unclosed",
)  # fmt: skip


@pytest.mark.parametrize("where", GOOD)
def test_a_boolean_over_the_columns_of_traces_is_taken(where: str) -> None:
    """Anything that is true or false of one trace, comments included."""
    assert Rule(name="r", evaluators=("e",), rate=1.0, where=where).where == where


@pytest.mark.parametrize("where", BAD)
def test_anything_else_is_refused(where: str) -> None:
    """The message repeats the condition."""
    with pytest.raises(ValueError, match="where"):
        Rule(name="r", evaluators=("e",), rate=0.5, where=where)


@pytest.mark.parametrize(
    "fields", [{"rate": 1.5}, {"rate": -0.1}, {"evaluators": ()}, {"strata": ({"where": "true", "rate": 2.0},)}]
)
def test_rates_and_names_are_checked(fields: dict[str, Any]) -> None:
    """A rate lies in 0..1 and there is something to evaluate."""
    with pytest.raises(ValueError, match=r"rule: \w+"):
        Rule(**(dict[str, Any]() | {"name": "r", "evaluators": ("e",), "rate": 0.5} | fields))


def test_any_change_is_a_new_policy() -> None:
    """The policy is a hash of what the rule does; where it was written does not matter."""
    rule = Rule(name="r", evaluators=("e",), rate=0.5, strata=(Stratum(where="error", rate=1.0),))
    again = Rule.of(Rule.stored(rule.text), source="file")
    assert again.policy == rule.policy
    assert len({rule.policy, Rule(name="r", evaluators=("e",), rate=0.5).policy, OFFLINE.policy}) == 3


@pytest.mark.parametrize("data", [{"name": "r", "rate": 1}, {"name": "r", "evaluators": "e", "rate": 1}, {"nmae": "r"}])
def test_a_written_rule_must_be_whole(data: dict[str, Any]) -> None:
    """Missing and unknown keys are refused."""
    with pytest.raises(ValueError, match=r"rule: \w+"):
        Rule.stored(json.dumps(data))


def test_a_forced_evaluation_keeps_the_designed_chance(kit: Any, rows: Any) -> None:
    """It makes the job; pi and the outcome of the draw stay, so that the estimate is not bent."""
    store = kit.store()
    sampler = Sampler(store, lambda: [Rule(name="r", evaluators=("e",), rate=0.5)])
    spans = [kit.span(1, kind="rag", trace_id=f"{n:032x}") for n in range(1, 21)]
    kit.send(store, *spans)
    sampler.decide(kit.later(3))
    drawn = {span.trace_id: sampling_number("ragpulse", span.trace_id, span.span_id) < 0.5 for span in spans}
    made = [sampler.force(trace_id, None, ["e"]) for trace_id in drawn]
    assert made == [int(not chosen) for chosen in drawn.values()]
    found = rows(store, "SELECT trace_id, pi, sampled, reason FROM decisions WHERE latest ORDER BY 1")
    assert found == [(trace_id, 0.5, chosen, "forced") for trace_id, chosen in drawn.items()]
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs") == [(20,)]


def test_forcing_what_no_rule_covers_enters_no_estimate(kit: Any, rows: Any) -> None:
    """An evaluator without a rule has chance 0; an unknown trace is an error."""
    store = kit.store()
    sampler = Sampler(store, lambda: [])
    kit.send(store, kit.span(1, kind="rag"))
    assert sampler.force(kit.trace, f"{1:016x}", ["e", "e"]) == 1
    assert rows(store, "SELECT evaluator, pi, sampled, reason FROM decisions") == [("e", 0.0, False, "forced")]
    with pytest.raises(NotFound):
        sampler.force("1" * 32, None, ["e"])


def test_the_rule_of_the_settings_is_the_rule_of_the_sampler() -> None:
    """One declaration: a field of `[[rule]]` is a field of the sampler's rule, with the same limits."""
    written = RuleSettings(
        name="r", evaluators=("e", "e"), rate=1, where="error", strata=(Stratum(where="true", rate=0.5),)
    )
    rule = Rule.of(written, source="file")
    as_json = json.loads(rule.text)
    assert as_json | {"unit": "trace", "budget_usd_per_day": None} == written.model_dump(mode="json")
    assert rule.evaluators == ("e",)
    assert set(Rule.model_fields) - set(RuleSettings.model_fields) == {"source"}
    assert len({rule, rule.changed(source="api"), rule.changed(rate=0.5)}) == 3
