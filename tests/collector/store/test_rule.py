"""Rules: canonical policies, and conditions that are checked before anything relies on them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ragpulse_collector.api.drafts import RuleDraft
from ragpulse_collector.operations.rules import RuleInForce
from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_collector.sampling import OFFLINE, Rule, Sampler
from ragpulse_collector.sampling.rules import RuleSet
from ragpulse_collector.settings import RuleSettings, Stratum
from ragpulse_collector.store.units.numbers import sampling_number

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


def canonical(**changes: Any) -> dict[str, Any]:
    """A rule as the store of any version holds it."""
    return {"name": "r", "evaluators": ["e"], "rate": 0.5, "where": None, "strata": []} | changes


@pytest.mark.parametrize(
    "stored",
    [
        canonical(),
        canonical(rate=1),
        canonical(rate=1e-07),
        canonical(name="größe", where="query = 'Öl \u2028'"),
        canonical(unit="session"),
        canonical(budget_usd_per_day=0.25),
        canonical(budget_usd_per_day=float("inf")),
        canonical(strata=[{"where": "error", "rate": 1.0}, {"where": "score.groundedness < 0.5", "rate": 0.75}]),
    ],
)
def test_stored_rules_keep_their_policy(stored: dict[str, Any]) -> None:
    """The policy is that of the version which wrote the rule, and what is written again is read again."""
    text = json.dumps(stored | {"rate": float(stored["rate"])}, sort_keys=True, separators=(",", ":"))
    policy = hashlib.sha256(text.encode()).hexdigest()[:12]
    rule = Rule.stored(json.dumps(stored))
    assert (rule.policy, Rule.stored(rule.text).policy, rule.source) == (policy, policy, "api")
    written = json.dumps({"at": "2026-11-21T08:00:00.000000", "rules": [stored]})
    known = RuleSet.stored(written)
    assert known.decides_like([rule.changed(source="file")])
    assert not known.decides_like([rule, rule])
    assert not known.decides_like([rule.changed(rate=0.125)])
    assert RuleSet.stored(known.text) == known


def test_parameters_and_answers_of_rules_have_the_fields_of_the_file() -> None:
    """No field of `[[rule]]` is declared a second time: what the file accepts, the API accepts and answers."""
    fields = set(RuleSettings.model_fields)
    assert set(RuleDraft.model_fields) == fields
    assert set(RuleInForce.model_fields) == fields | {"policy", "source", "enabled", "spent_today_usd"}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"evaluators": "e, f,e"}, {"evaluators": ("e", "f")}),
        ({"evaluators": '["e"]', "strata": '[{"where": "error", "rate": 1}]'},
         {"evaluators": ("e",), "strata": (Stratum(where="error", rate=1.0),)}),
        ({"evaluators": ["e"], "rate": "0.25", "unit": "session", "budget_usd_per_day": "2"},
         {"rate": 0.25, "unit": "session", "budget_usd_per_day": 2.0}),
        ({"evaluators": ["e"], "where": "", "unit": None}, {"where": None, "unit": "trace"}),
    ],
)  # fmt: skip
def test_a_request_is_a_rule(values: dict[str, Any], rule: dict[str, Any]) -> None:
    """Texts of a query string become the same rule as JSON or TOML."""
    parsed = Rule.of(RuleDraft.parse({"name": "r", "rate": 0.5} | values), source="api")
    assert {name: getattr(parsed, name) for name in rule} == rule


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"evaluators": []}, "evaluators"),
        ({"evaluators": ["e"], "rate": 2}, "rate"),
        ({"evaluators": ["e"], "rate": "nan"}, "rate"),
        ({"evaluators": ["e"], "budget_usd_per_day": -1}, "budget_usd_per_day"),
        ({"evaluators": ["e"], "budget_usd_per_day": "inf"}, "budget_usd_per_day"),
        ({"evaluators": ["e"], "strata": [{"where": "error", "rat": 1}]}, "rat"),
        ({"evaluators": ["e"], "strata": "no list"}, "strata"),
        ({"evaluators": ["e"], "unit": "span"}, "unit"),
        ({"evaluators": ["e"], "judge": "m"}, "judge"),
        ({"evaluators": ["e"], "policy": "0"}, "policy"),
    ],
)
def test_a_wrong_request_for_a_rule_is_refused_by_name(values: dict[str, Any], said: str) -> None:
    """Limits are those of the file."""
    with pytest.raises(Refusal, match=said) as refused:
        RuleDraft.parse({"name": "r", "rate": 0.5} | values)
    assert refused.value.status == 400
