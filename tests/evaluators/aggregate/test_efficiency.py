"""Latency, cost, throughput and the share that passes."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, EvaluationResult, evaluate_sync


def measured(name: str, cases: list[Case], **params: object) -> EvaluationResult:
    """The one result of a metric over a set."""
    results = evaluate_sync(cases, [name], params={name: params})[name]
    assert len(results) == 1
    return results[0]


def labelled(pairs: list[tuple[str, str]]) -> list[Case]:
    """Cases whose answers are labels."""
    return [Case(response=said, reference=wanted) for said, wanted in pairs]


def test_latency_and_cost_have_no_unit_form_without_target() -> None:
    """Seconds and dollars have no natural best; a target gives one."""
    case = Case(latency_s=4.0, cost_usd=0.002)
    plain = evaluate_sync([case], ["latency", "cost"])
    assert (plain["latency"][0].score, plain["latency"][0].normalized) == (4.0, None)
    assert plain["cost"][0].score == 0.002
    slow = evaluate_sync([case], ["latency"], params={"latency": {"target": 2.0}})["latency"][0]
    assert (slow.normalized, slow.passing) == (0.5, False)
    assert evaluate_sync([Case()], ["latency"])["latency"][0].status == "skipped"


def test_throughput_knows_three_windows() -> None:
    """One given, one from start to end, one as if in a row."""
    cases = [Case(latency_s=2.0, metadata={"start_time": f"2026-01-01T00:00:0{i}+00:00"}) for i in range(3)]
    assert measured("throughput", cases, window_s=6.0).score == 0.5
    assert measured("throughput", cases).score == pytest.approx(3 / 4)
    in_a_row = measured("throughput", [Case(latency_s=2.0), Case(latency_s=2.0)], target=1.0)
    assert (in_a_row.score, in_a_row.normalized, in_a_row.passing) == (0.5, 0.5, False)


def test_pass_rate_counts_what_passes_with_wilsons_interval() -> None:
    """Two of three exact matches: [0.208, 0.939]; the case without reference is skipped."""
    cases = [*labelled([("a", "a"), ("b", "b"), ("c", "a")]), Case(response="x")]
    found = measured("pass_rate", cases)
    assert found.score == pytest.approx(2 / 3)
    assert found.ci95 == pytest.approx((0.208, 0.939), abs=5e-4)
    assert found.parts["skipped"] == 1
    assert measured("pass_rate", cases, of="token_f1").status == "invalid"
