"""The sampler: units, draws with known chances, late facts, all in one transaction."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.conventions.dedupe import Node, token_spans
from ragpulse_collector.records import ContentRecord, ContextRecord, ScoreRecord
from ragpulse_collector.sampling import OFFLINE, Rule, Sampler, decision
from ragpulse_collector.settings import Stratum
from ragpulse_collector.store.queries import decisions
from ragpulse_collector.store.units import decided
from ragpulse_collector.store.units.numbers import sampling_number
from ragpulse_collector.units.cases import Unit, case_of, cases_of

ALL = Rule(name="all", evaluators=("faithfulness",), rate=1.0)
HALF = Rule(name="half", evaluators=("faithfulness",), rate=0.5)


def trace_of(number: int) -> str:
    """A trace id of its own."""
    return f"{number:032x}"


def traces(kit: Any, count: int, **fields: Any) -> list[Any]:
    """So many one-span traces."""
    return [kit.span(1, kind="rag", trace_id=trace_of(n), **fields) for n in range(1, count + 1)]


def test_a_trace_is_decided_two_seconds_after_its_root(kit: Any, rows: Any) -> None:
    """Not before it settled, once when it did, and not again."""
    store = kit.store()
    sampler = Sampler(store)
    kit.send(store, kit.span(1, kind="rag", query="q", response="r"), kit.span(2, 1, "llm"))
    assert [sampler.decide(kit.later(1.9)), sampler.decide(kit.later(0.2)), sampler.decide(kit.later(60))] == [0, 1, 0]
    assert rows(store, "SELECT query, response, n_spans, n_units, decided FROM traces") == [("q", "r", 2, 1, True)]
    decided = rows(store, "SELECT evaluator, rule, policy, pi, sampled, reason FROM decisions")
    assert decided == [(name, "offline", OFFLINE.policy, 1.0, True, "sampled") for name in OFFLINE.evaluators]
    assert rows(store, "SELECT evaluator, source FROM raw.eval_jobs") == [(n, "online") for n in OFFLINE.evaluators]


def test_a_trace_without_a_root_is_decided_after_thirty_quiet_seconds(kit: Any, rows: Any) -> None:
    """A span whose parent was never received is a local root and its own unit."""
    store = kit.store()
    sampler = Sampler(store)
    kit.send(store, kit.span(2, 1, "chain", query="q"))
    assert [sampler.decide(kit.later(29)), sampler.decide(kit.later(2))] == [0, 1]
    assert rows(store, "SELECT DISTINCT span_id FROM decisions") == [(f"{2:016x}",)]


def test_the_units_are_the_outermost_rag_spans(kit: Any, rows: Any) -> None:
    """Two rag spans side by side are two units; a rag span inside one is part of it, like everything else."""
    store = kit.store()
    kit.send(
        store,
        kit.span(1, kind="other"),
        kit.span(2, 1, "rag", query="first"),
        kit.span(3, 1, "rag"),
        kit.span(4, 2, "chain"),
        kit.span(5, 4, "rag"),
    )
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    assert rows(store, "SELECT span_id FROM decisions ORDER BY 1") == [(f"{2:016x}",), (f"{3:016x}",)]
    assert rows(store, "SELECT query, n_units, unit_span_id FROM traces") == [("first", 2, f"{2:016x}")]


def test_figures_that_fit_no_column_stop_no_decision(kit: Any, rows: Any) -> None:
    """A file of an earlier version may hold such figures: the sum is unknown, and other traces are decided."""
    store = kit.store()
    most = 2**63 - 1
    calls = [kit.span(number, 1, "llm", input_tokens=most, ttft_ms=1e300) for number in (2, 3)]
    kit.send(store, kit.span(1, kind="rag"), *calls)
    assert rows(store, "SELECT input_tokens FROM traces") == [(None,)]
    assert Sampler(store).decide(kit.later(3)) == 1
    assert rows(store, "SELECT input_tokens, ttft_ms FROM traces") == [(None, None)]


def test_an_evaluators_span_is_never_a_unit(kit: Any, rows: Any) -> None:
    """Nor is anything that it called: evaluator calls are traced and never evaluated."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="evaluator"), kit.span(2, 1, "llm"), kit.span(3, 1, "rag"))
    assert Sampler(store, lambda: [ALL]).decide(kit.later(3)) == 1
    assert rows(store, "SELECT n_units FROM traces") == [(0,)]
    assert rows(store, "SELECT count(*) FROM decisions") == [(0,)]


def test_spans_in_a_circle_do_no_harm(kit: Any, rows: Any) -> None:
    """Spans that are each other's parents have no unit, and the decision ends."""
    store = kit.store()
    kit.send(store, kit.span(1, 2, "rag"), kit.span(2, 1, "rag"), kit.span(3, 3, "rag"))
    assert Sampler(store, lambda: [ALL]).decide(kit.later(31)) == 1
    assert rows(store, "SELECT span_id FROM decisions") == [(f"{3:016x}",)]


def test_one_number_per_unit_decides_for_every_rule(kit: Any, rows: Any) -> None:
    """u is the salted hash, shared by all evaluators, and chosen means u < pi: decisions are nested."""
    store = kit.store()
    kit.send(store, *traces(kit, 60))
    rules = [HALF, Rule(name="few", evaluators=("relevancy",), rate=0.2)]
    Sampler(store, lambda: rules, salt="salt").decide(kit.later(3))
    decided = rows(store, "SELECT trace_id, span_id, evaluator, pi, u, sampled, reason FROM decisions")
    assert len(decided) == 120
    for trace_id, span_id, evaluator, pi, u, sampled, reason in decided:
        assert u == sampling_number("salt", trace_id, span_id)
        assert pi == {"faithfulness": 0.5, "relevancy": 0.2}[evaluator]
        assert (sampled, reason) == ((True, "sampled") if u < pi else (False, "not_sampled"))
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs")[0][0] == sum(row[5] for row in decided)


def test_the_highest_of_rules_and_strata_is_the_chance(kit: Any, rows: Any) -> None:
    """Several rules or strata on one evaluator: pi = max, and the rule that gave it is named."""
    store = kit.store()
    kit.send(store, *traces(kit, 1), kit.span(1, kind="rag", trace_id=trace_of(2), status="error"))
    risky = Rule(name="risky", evaluators=("faithfulness",), rate=0.1, strata=(Stratum(where="error", rate=0.9),))
    Sampler(store, lambda: [HALF, risky]).decide(kit.later(3))
    assert rows(store, "SELECT trace_id, rule, pi FROM decisions ORDER BY 1") == [
        (trace_of(1), "half", 0.5),
        (trace_of(2), "risky", 0.9),
    ]


def test_what_no_rule_covers_is_recorded_with_chance_zero(kit: Any, rows: Any) -> None:
    """pi = 0 is 'not covered', never silently left out; a condition that fails on a row does not hold."""
    store = kit.store()
    kit.send(store, *traces(kit, 1, service="a", user_id="7"), kit.span(1, kind="rag", user_id="x"))
    rule = Rule(name="mine", evaluators=("faithfulness",), rate=1.0, where="user_id::INTEGER > 3")
    Sampler(store, lambda: [rule]).decide(kit.later(3))
    assert rows(store, "SELECT trace_id, pi, sampled, reason FROM decisions ORDER BY 1") == [
        (trace_of(1), 1.0, True, "sampled"),
        (kit.trace, 0.0, False, "filtered"),
    ]


def test_upstream_sampling_multiplies_into_the_chance(kit: Any, rows: Any) -> None:
    """What the client's sampler kept with 1/4 and we with 1/2 stands for eight; our draw uses our own rate."""
    store = kit.store()
    kit.send(store, *traces(kit, 40, upstream_pi=0.25))
    Sampler(store, lambda: [HALF]).decide(kit.later(3))
    found = rows(store, "SELECT pi, u, sampled FROM decisions")
    assert {row[0] for row in found} == {0.125}
    assert all(sampled == (u < 0.5) for _, u, sampled in found)


def test_a_budget_acts_through_the_chance(kit: Any, rows: Any) -> None:
    """Half the budget halves pi; what it alone left out says `budget`."""
    store = kit.store()
    kit.send(store, *traces(kit, 40))
    Sampler(store, lambda: [HALF], pi_scale=lambda name: (0.5, "budget")).decide(kit.later(3))
    for pi, u, reason in rows(store, "SELECT pi, u, reason FROM decisions"):
        assert pi == 0.25
        assert reason == ("sampled" if u < 0.25 else "budget" if u < 0.5 else "not_sampled")


def test_late_feedback_redecides_with_the_same_number(kit: Any, rows: Any) -> None:
    """A thumbs-down moves the trace to another stratum: pi is replaced, u is not, the old row stays in the log."""
    store = kit.store()
    rule = Rule(name="r", evaluators=("faithfulness",), rate=0.0, strata=(Stratum(where="feedback < 0", rate=1.0),))
    sampler = Sampler(store, lambda: [rule])
    kit.send(store, *traces(kit, 1))
    sampler.decide(kit.later(3))
    kit.later(60)
    thumbs = ScoreRecord(trace_id=trace_of(1), span_id=None, time_ns=kit.start_ns, name="thumbs", score=-1.0)
    kit.send(store, scores=[thumbs])
    assert sampler.decide(kit.later(1)) == 1
    found = rows(store, "SELECT revision, latest, pi, sampled, reason FROM decisions ORDER BY revision")
    assert found == [(0, False, 0.0, False, "filtered"), (1, True, 1.0, True, "sampled")]
    assert rows(store, "SELECT count(DISTINCT u) FROM decisions") == [(1,)]
    assert rows(store, "SELECT feedback, late_spans FROM traces") == [(-1.0, 0)]
    scored = rows(store, "SELECT span_id, evaluator, source, score, status FROM scores")
    assert scored == [(f"{1:016x}", "thumbs", "human", -1.0, "ok")]


def test_late_facts_decide_under_the_rules_of_the_first_decision(kit: Any, rows: Any) -> None:
    """A rule whose `where` was changed since must not move what it decided before: that turned 0.792 into 1.000.

    The trace that came after the change has the new rule, also in the same transaction and after a restart.
    """
    store = kit.store()
    first = Rule(name="r", evaluators=("faithfulness",), rate=1.0)
    changed = Rule(name="r", evaluators=("faithfulness",), rate=0.25, where="feedback > 0")
    kit.send(store, *traces(kit, 2))
    Sampler(store, lambda: [first]).decide(kit.later(3))
    kit.later(60)
    thumbs = [
        ScoreRecord(trace_id=trace_of(n), span_id=None, time_ns=kit.start_ns, name="thumbs", score=score)
        for n, score in ((1, -1.0), (2, 1.0), (3, 1.0))
    ]
    kit.send(store, kit.span(1, kind="rag", trace_id=trace_of(3)), scores=thumbs)
    assert Sampler(store, lambda: [changed]).decide(kit.later(3)) == 3
    found = rows(store, "SELECT trace_id, pi, policy FROM decisions WHERE latest ORDER BY 1")
    assert found == [
        (trace_of(1), 1.0, first.policy), (trace_of(2), 1.0, first.policy), (trace_of(3), 0.25, changed.policy),
    ]  # fmt: skip


@pytest.mark.parametrize("days", [-2, 2])
def test_a_span_with_a_wrong_clock_does_not_move_its_trace(kit: Any, rows: Any, days: int) -> None:
    """A child two days early (or late) is counted; list, overview and series have the trace at its request."""
    store = kit.store()
    wrong = kit.start_ns + days * 86_400 * 10**9
    kit.send(store, kit.span(1, kind="rag"), kit.span(2, 1, "llm", start_ns=wrong, end_ns=wrong, input_tokens=7))
    Sampler(store, lambda: [ALL]).decide(kit.later(31))
    request = kit.start + timedelta(milliseconds=1)
    assert rows(store, "SELECT start_time, latency_ms, misdated_spans, input_tokens, ttft_ms FROM traces") == [
        (request, 100.0, 1, 7, None)
    ]
    assert rows(store, "SELECT request_time FROM decisions") == [(request,)]
    thumbs = ScoreRecord(trace_id=kit.trace, span_id=None, time_ns=kit.start_ns, name="thumbs", score=1.0)
    kit.send(store, scores=[thumbs])
    assert Sampler(store, lambda: [ALL]).decide(kit.later(31)) == 1
    found = rows(store, "SELECT start_time, n_spans, misdated_spans, input_tokens, feedback FROM traces")
    assert found == [(request, 2, 1, 7, 1.0)]


@pytest.mark.parametrize("days", [-4, 4])
def test_a_root_with_a_wrong_clock_is_where_its_trace_was_received(kit: Any, rows: Any, days: int) -> None:
    """List, decisions and scores have it at its child's time, or at its receipt where it came alone and is ahead."""
    store = kit.store()
    wrong = kit.start_ns + days * 86_400 * 10**9
    texts = ContentRecord(trace_id=kit.trace, span_id=f"{1:016x}", time_ns=wrong, query="q", response="a")
    root, other = (kit.span(n, kind="rag", trace_id=trace, start_ns=wrong, end_ns=wrong + 10**8)
                   for n, trace in ((1, kit.trace), (3, trace_of(9))))  # fmt: skip
    kit.send(store, root, kit.span(2, 1, "llm"), other, contents=[texts])
    assert Sampler(store, lambda: [ALL]).decide(kit.later(31)) == 2
    child = rows(store, "SELECT start_time FROM spans WHERE span_id = ?", f"{2:016x}")[0][0]
    alone = kit.start + timedelta(days=days) if days < 0 else kit.start
    found = rows(store, "SELECT start_time, latency_ms, misdated_spans FROM traces ORDER BY n_spans DESC")
    assert found[0] == (child, 100.0, 1)
    assert (abs(found[1][0] - alone) < timedelta(minutes=1), found[1][2]) == (True, int(days > 0))
    assert rows(store, "SELECT request_time FROM decisions ORDER BY trace_id = ?", trace_of(9))[0] == (child,)
    thumbs = ScoreRecord(trace_id=kit.trace, span_id=None, time_ns=kit.start_ns, name="thumbs", score=1.0)
    kit.send(store, scores=[thumbs])
    assert Sampler(store, lambda: [ALL]).decide(kit.later(31)) == 1
    assert rows(store, "SELECT start_time, feedback, n_spans FROM traces WHERE feedback > 0") == [(child, 1.0, 2)]
    assert rows(store, "SELECT request_time FROM scores") == [(child,)]
    case = case_of(store, kit.trace, f"{1:016x}", request_time=child)
    assert case is not None
    assert (case.query, case.response) == ("q", "a")


def test_test_runs_are_marked(kit: Any, rows: Any) -> None:
    """Spans of `ragpulse regress` are evaluated like others, and their decisions say what they are."""
    store = kit.store()
    kit.send(store, *traces(kit, 1, environment="regress"))
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    assert rows(store, "SELECT pi, sampled, reason FROM decisions") == [(1.0, True, "test_run")]
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs") == [(1,)]


def test_feedback_may_be_about_an_old_trace(kit: Any, rows: Any) -> None:
    """Traces that came today do not hide the one of last month that somebody rates now."""
    store = kit.store()
    sampler = Sampler(store)
    kit.send(store, *traces(kit, 1))
    sampler.decide(kit.later(3))
    month = 30 * 86_400
    kit.later(month)
    now = kit.start_ns + month * 10**9
    thumbs = ScoreRecord(trace_id=trace_of(1), span_id=None, time_ns=now, name="thumbs", score=1.0)
    kit.send(store, kit.span(1, kind="rag", start_ns=now, end_ns=now), scores=[thumbs])
    assert sampler.decide(kit.later(3)) == 2
    assert rows(store, "SELECT trace_id, feedback FROM traces ORDER BY 1") == [(trace_of(1), 1.0), (kit.trace, None)]
    assert rows(store, "SELECT trace_id, request_time FROM scores") == [
        (trace_of(1), kit.start + timedelta(milliseconds=1))
    ]


def test_feedback_before_its_trace_is_kept(kit: Any, rows: Any) -> None:
    """A score may arrive before the span it is about; it joins when the trace is decided, once."""
    store = kit.store()
    sampler = Sampler(store)
    early = ScoreRecord(trace_id=trace_of(1), span_id=None, time_ns=kit.start_ns, name="thumbs", score=1.0)
    kit.send(store, scores=[early])
    assert sampler.decide(kit.later(5)) == 0
    kit.send(store, *traces(kit, 1))
    assert sampler.decide(kit.later(3)) == 1
    assert rows(store, "SELECT feedback FROM traces") == [(1.0,)]
    assert rows(store, "SELECT count(*) FROM scores") == [(1,)]


def test_a_late_span_makes_a_new_revision(kit: Any, rows: Any) -> None:
    """It is counted as late, joins the facts, and no job is made twice."""
    store = kit.store()
    sampler = Sampler(store, lambda: [ALL])
    kit.send(store, kit.span(1, kind="rag"))
    sampler.decide(kit.later(3))
    kit.later(5)
    kit.send(store, kit.span(2, 1, "llm", input_tokens=7, output_tokens=3))
    assert [sampler.decide(kit.later(1)), sampler.decide(kit.later(2)), sampler.decide(kit.later(9))] == [0, 1, 0]
    assert rows(store, "SELECT n_spans, late_spans, input_tokens FROM traces") == [(2, 1, 7)]
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs") == [(1,)]


def test_a_unit_that_proves_to_be_a_part_leaves_the_estimates(kit: Any, rows: Any) -> None:
    """Its parent came late: the old unit's latest decision is `late` with pi 0, the new unit is decided."""
    store = kit.store()
    sampler = Sampler(store, lambda: [ALL])
    kit.send(store, kit.span(2, 1, "chain", query="q"))
    sampler.decide(kit.later(31))
    kit.send(store, kit.span(1, kind="rag"))
    sampler.decide(kit.later(3))
    assert rows(store, "SELECT span_id, pi, sampled, reason FROM decisions WHERE latest ORDER BY 1") == [
        (f"{1:016x}", 1.0, True, "sampled"),
        (f"{2:016x}", 0.0, False, "late"),
    ]


def test_a_restart_loses_and_repeats_no_decision(kit: Any, rows: Any) -> None:
    """Undecided traces are found again by a new process, decided ones are left alone."""
    store = kit.store()
    kit.send(store, *traces(kit, 3))
    Sampler(store).decide(kit.later(3))
    kit.send(store, kit.span(1, kind="rag"))
    store.close()
    again = kit.store()
    assert Sampler(again).decide(kit.later(3)) == 1
    assert Sampler(again).decide(kit.later(3)) == 0
    assert rows(again, "SELECT count(*), count(DISTINCT trace_id) FROM raw.trace_facts") == [(4, 4)]


def test_a_backlog_is_decided_in_parts(kit: Any, rows: Any) -> None:
    """More traces than one transaction takes are decided in several, each once."""
    store = kit.store()
    kit.send(store, *traces(kit, 25))
    assert Sampler(store, lambda: [ALL], max_traces=10).decide(kit.later(3)) == 25
    assert rows(store, "SELECT count(*), count(DISTINCT trace_id) FROM decisions") == [(25, 25)]


def test_services_take_turns_and_a_call_ends(kit: Any, rows: Any) -> None:
    """A flood of one service delays no trace of another, and its rest is left to the next calls."""
    store = kit.store()
    kit.send(store, *traces(kit, 20, service="flood"))
    kit.send(store, *(kit.span(1, kind="rag", trace_id=trace_of(n), service="other") for n in (21, 22)))
    sampler = Sampler(store, lambda: [ALL], max_traces=4, within_s=0.0)
    decided = [sampler.decide(kit.later(3))]
    assert rows(store, "SELECT service, count(*) FROM traces WHERE decided GROUP BY 1") == [("flood", 2), ("other", 2)]
    while count := sampler.decide(kit.clock()):
        decided.append(count)
    assert decided == [4, 4, 4, 4, 4, 2]


def test_without_rules_traces_are_still_rolled_up(kit: Any, rows: Any) -> None:
    """An empty rule list makes facts and no decisions."""
    store = kit.store()
    kit.send(store, *traces(kit, 2))
    assert Sampler(store, lambda: []).decide(kit.later(3)) == 2
    assert rows(store, "SELECT (SELECT count(*) FROM traces), (SELECT count(*) FROM decisions)") == [(2, 0)]


def test_tokens_of_a_repeated_call_are_counted_once(kit: Any, rows: Any) -> None:
    """One response id twice, and a wrapper around a call, count once; an unknown price makes the total unknown."""
    store = kit.store()
    usage = {"input_tokens": 10, "output_tokens": 2}
    kit.send(
        store,
        kit.span(1, kind="rag"),
        kit.span(2, 1, "llm", response_id="x", cost_usd=0.5, cost_source="provider", **usage),
        kit.span(3, 1, "llm", response_id="x", cost_usd=0.5, cost_source="provider", **usage),
        kit.span(4, 1, "llm", cost_usd=0.25, cost_source="provider", **usage),
        kit.span(5, 4, "llm", cost_usd=0.25, cost_source="provider", **usage),
    )
    kit.send(store, kit.span(1, kind="rag", trace_id=trace_of(1)), kit.span(2, 1, "llm", trace_id=trace_of(1), **usage))
    Sampler(store).decide(kit.later(3))
    found = rows(store, "SELECT input_tokens, output_tokens, cost_usd, cost_unknown_reason FROM traces ORDER BY 1")
    assert found == [(10, 2, None, "1 of 1 calls: unpriced"), (20, 4, 0.75, None)]


@pytest.mark.parametrize(
    ("second", "cost", "reason"),
    [
        ({}, None, "1 of 2 calls: unpriced"),
        ({"cost_unknown_reason": "no input tokens"}, None, "1 of 2 calls: no input tokens"),
        ({"status": "error"}, 0.5, None),
        ({"parent": 2}, 0.5, None),
        ({"kind": "tool"}, 0.5, None),
    ],
    ids=["silent", "with a reason", "failed", "inside a call that tells", "no call"],
)
def test_a_call_that_tells_nothing_makes_the_trace_unknown(
    kit: Any, rows: Any, second: dict[str, Any], cost: float | None, reason: str | None
) -> None:
    """A sum that leaves a model call out would be too low; failed calls and wrappers leave none out."""
    store = kit.store()
    given = {"parent": 1, "kind": "llm"} | second
    told = kit.span(2, 1, "llm", cost_usd=0.5, cost_source="provider", input_tokens=1, output_tokens=1)
    kit.send(store, kit.span(1, kind="rag"), told, kit.span(3, given.pop("parent"), **given))
    Sampler(store).decide(kit.later(3))
    assert rows(store, "SELECT cost_usd, cost_unknown_reason FROM traces") == [(cost, reason)]


def _deciding_s(kit: Any, size: int) -> float:
    """Decide one trace: half its spans are a chain of containers, the other half RAG spans at its end."""
    store, half = kit.store(), size // 2
    chain = [kit.span(n, n - 1 if n > 1 else None) for n in range(1, half + 1)]
    kit.send(store, *chain, *(kit.span(n, half, "rag") for n in range(half + 1, size + 1)))
    sampler = Sampler(store, lambda: [ALL])
    begun = time.process_time()
    assert sampler.decide(kit.later(40)) == 1
    return time.process_time() - begun


def test_a_deep_trace_is_decided_in_time_proportional_to_its_size(tmp_path: Path, kit: Any) -> None:
    """Deciding runs on the writer: eight times the spans take about eight times as long, not 64 times."""
    times = []
    for size in (500, 4000):
        (tmp_path / str(size)).mkdir()
        other = type(kit)(tmp_path / str(size))
        times.append(_deciding_s(other, size))
        other.close()
    assert times[1] < 24 * times[0]


def test_bodies_are_stored_while_repeated_usage_is_looked_for(
    kit: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is free: a body is on disk before the check ends. What it brings is late and makes a revision."""
    store, usage = kit.store(), {"input_tokens": 10, "cost_usd": 0.5}
    sampler = Sampler(store, lambda: [ALL])
    kit.send(store, kit.span(1, kind="llm", **usage), kit.span(2, 1, "llm", **usage))
    received = []

    def checked(nodes: list[Node]) -> list[str]:
        received.append(kit.send(store, kit.span(3 + len(received), 2, "llm", **usage)))
        return token_spans(nodes)

    monkeypatch.setattr(decision, "token_spans", checked)
    facts = "SELECT revision, n_spans, late_spans, input_tokens FROM raw.trace_facts ORDER BY revision"
    assert sampler.decide(kit.later(3)) == 1
    assert (len(received), rows(store, facts)) == (1, [(0, 2, 0, 10)])
    monkeypatch.setattr(decision, "token_spans", token_spans)
    assert sampler.decide(kit.later(3)) == 1
    assert rows(store, facts) == [(0, 2, 0, 10), (1, 3, 1, 10)]
    assert rows(store, "SELECT revision, latest FROM raw.decisions ORDER BY 1") == [(0, False), (1, True)]


def test_a_trace_that_is_forgotten_while_it_is_decided_leaves_nothing(
    kit: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two transactions of a decision anything may be deleted."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="llm", input_tokens=1), kit.span(2, 1, "llm", input_tokens=1))

    def forgotten(nodes: list[Node]) -> list[str]:
        store.write(lambda transaction: transaction.execute("DELETE FROM raw.spans")).result(60)
        return token_spans(nodes)

    monkeypatch.setattr(decision, "token_spans", forgotten)
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    assert rows(store, "SELECT (SELECT count(*) FROM raw.trace_facts), (SELECT count(*) FROM raw.decisions)") == [
        (0, 0)
    ]


def test_usage_in_a_very_large_trace_counts_for_each_span(kit: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound nothing is compared: the sum holds repeated usage, and the trace says so."""
    limit = str(decided.MAX_DEDUPLICATED_SPANS)
    for module, name in ((decisions, "DOUBTFUL_USAGE"), (decided, "FACT")):
        statement = getattr(module, name)
        assert limit in statement
        monkeypatch.setattr(module, name, statement.replace(limit, "3"))
    store, usage = kit.store(), {"input_tokens": 10, "cost_usd": 0.5, "response_id": "x"}
    for trace, count in ((trace_of(1), 3), (trace_of(2), 4)):
        kit.send(
            store, *(kit.span(n, n - 1 if n > 1 else None, "llm", trace_id=trace, **usage) for n in range(1, count + 1))
        )
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    found = rows(store, "SELECT input_tokens, cost_usd, cost_unknown_reason FROM raw.trace_facts ORDER BY n_spans")
    said = "more than 3 spans: usage that several spans state is counted for each"
    assert found == [(10, 0.5, None), (40, 2.0, said)]


def test_a_backlog_of_large_traces_is_decided_in_parts(kit: Any, rows: Any) -> None:
    """A transaction takes a bounded number of spans, and one trace whatever its size."""
    store = kit.store()
    for number in range(1, 5):
        kit.send(store, *(kit.span(n, n - 1 if n > 1 else None, trace_id=trace_of(number)) for n in range(1, 6)))
    assert Sampler(store, lambda: [ALL], max_spans=3).decide(kit.later(3)) == 4
    assert rows(store, "SELECT count(*), count(DISTINCT decided_at) FROM raw.trace_facts") == [(4, 4)]


def test_facts_describe_the_first_unit(kit: Any, rows: Any) -> None:
    """Latency and names are the unit's, what it does not say comes from the spans below."""
    store = kit.store()
    kit.send(
        store,
        kit.span(1, kind="other", name="POST /ask", session_id="s"),
        kit.span(2, 1, "rag", name="answer", service="helpdesk", status="error"),
        kit.span(3, 2, "retriever", contexts=[ContextRecord(rank=1, text="a", score=0.4)]),
        kit.span(4, 2, "llm", model="gpt-5-mini", ttft_ms=20.0, prompt_version="v7"),
    )
    Sampler(store).decide(kit.later(3))
    sql = "SELECT name, service, session_id, error, latency_ms, ttft_ms, model, prompt_version, top_score FROM traces"
    assert rows(store, sql) == [("answer", "helpdesk", "s", True, 100.0, 22.0, "gpt-5-mini", "v7", 0.4)]


def test_texts_on_a_log_event_join_in_either_order(kit: Any, rows: Any) -> None:
    """Before its span, with it, after it, after the decision: the facts show the texts in the end."""
    store = kit.store()
    sampler = Sampler(store)

    def event(number: int) -> ContentRecord:
        return ContentRecord(
            trace_id=trace_of(number), span_id=f"{1:016x}", time_ns=kit.start_ns, query=f"q{number}", response="r"
        )

    spans = dict(enumerate(traces(kit, 3), start=1))
    kit.send(store, contents=[event(1)])
    kit.send(store, spans[1], spans[2], spans[3])
    kit.send(store, contents=[event(2)])
    sampler.decide(kit.later(3))
    kit.later(1)
    kit.send(store, contents=[event(3)])
    sampler.decide(kit.later(1))
    assert rows(store, "SELECT query, response FROM traces ORDER BY 1") == [("q1", "r"), ("q2", "r"), ("q3", "r")]
    assert rows(store, "SELECT query FROM spans ORDER BY 1") == [("q1",), ("q2",), ("q3",)]


@pytest.mark.parametrize("salt", ["a", "b"])
def test_the_number_is_spread_evenly(salt: str) -> None:
    """Draws fill [0, 1) without lumps, whatever the salt."""
    numbers = sorted(sampling_number(salt, trace_of(n), f"{1:016x}") for n in range(2_000))
    worst = max(abs(value - (rank + 0.5) / 2_000) for rank, value in enumerate(numbers))
    assert 0.0 <= numbers[0] <= numbers[-1] < 1.0
    assert worst < 0.043  # Kolmogorov-Smirnov at one in a thousand


def test_decisions_are_some_time_apart(kit: Any) -> None:
    """The next comes two seconds after one, and nothing waits longer than that."""
    store = kit.store()
    kit.send(store, *traces(kit, 3))
    sampler = Sampler(store, lambda: [], settle_s=0.5)
    assert sampler.decide(kit.later(0.5)) == 3
    kit.send(store, kit.span(1, kind="rag"))
    assert [sampler.decide(kit.later(1.99)), sampler.decide(kit.later(0.01))] == [0, 1]


_BELOW: dict[str, tuple[list[tuple[Any, ...]], tuple[Any, ...]]] = {
    # spans as (id, parent, kind, fields); the unit is the first. Expected: query, response, error, and their spans.
    "an HTTP root over a retriever and a model call": (
        [
            (1, None, "other", {}),
            (2, 1, "retriever", {"query": "q"}),
            (3, 1, "llm", {"query": "prompt", "response": "a"}),
        ],
        ("q", "a", False, 2, 3),
    ),
    "an agent's run: the first question and the last call": (
        [
            (1, None, "agent", {}),
            (2, 1, "llm", {"query": "q"}),
            (3, 1, "tool", {"query": "{}", "response": "t"}),
            (4, 1, "llm", {"query": "q", "response": "a"}),
        ],
        ("q", "a", False, 2, 4),
    ),
    "a call in a call is somebody's child": (
        [
            (1, None, "chain", {"query": "own"}),
            (2, 1, "llm", {"response": "a"}),
            (3, 2, "chain", {}),
            (4, 3, "llm", {"response": "b"}),
        ],
        ("own", "a", False, None, 2),
    ),
    "the last call failed, so did the unit": (
        [
            (1, None, "agent", {"status": "ok"}),
            (2, 1, "llm", {"query": "q", "response": "thinking"}),
            (3, 1, "llm", {"status": "error"}),
        ],
        ("q", None, True, 2, None),
    ),
    "the last call said nothing: an earlier one is no answer": (
        [(1, None, "other", {}), (2, 1, "llm", {"query": "q", "response": "let me look"}), (3, 1, "llm", {})],
        ("q", None, False, 2, None),
    ),
    "no call is recorded: the chain below speaks": (
        [(1, None, "other", {}), (2, 1, "chain", {"query": "q", "response": "a"}), (3, 2, "chain", {"response": "b"})],
        ("q", "a", False, 2, 2),
    ),
    "what judges and guards say is no answer": (
        [
            (1, None, "other", {}),
            (2, 1, "llm", {"query": "q", "response": "a"}),
            (3, 1, "guardrail", {}),
            (4, 3, "llm", {"query": "safe?", "response": "yes"}),
            (5, 1, "evaluator", {"query": "good?", "response": "yes"}),
        ],
        ("q", "a", False, 2, 2),
    ),
    "a failed chain does not answer with what it passed on": (
        [
            (1, None, "chain", {"query": "q", "status": "error"}),
            (2, 1, "chain", {"query": "q", "response": "q"}),
            (3, 1, "retriever", {"query": "q", "status": "error"}),
        ],
        ("q", None, True, None, None),
    ),
    "a root that failed after the call has no answer": (
        [(1, None, "other", {"status": "error"}), (2, 1, "llm", {"query": "q", "response": "a"})],
        ("q", None, True, 2, None),
    ),
    "nor has a root above a chain that failed": (
        [
            (1, None, "other", {}),
            (2, 1, "chain", {"status": "error"}),
            (3, 2, "chain", {"query": "q", "response": "q"}),
            (4, 2, "llm", {"query": "p", "response": "never given"}),
        ],
        ("p", None, False, 4, None),
    ),
    "a second try answers": (
        [
            (1, None, "other", {}),
            (2, 1, "chain", {"query": "q", "status": "error"}),
            (3, 2, "llm", {"response": "a"}),
            (4, 1, "chain", {}),
            (5, 4, "llm", {"response": "b"}),
        ],
        ("q", "b", False, 2, 5),
    ),
    "what a failed root streamed itself stays": (
        [
            (1, None, "chain", {"response": "Refunds ta", "status": "error"}),
            (2, 1, "llm", {"query": "q", "response": "a"}),
        ],
        ("q", "Refunds ta", True, 2, None),
    ),
    "None is no text where a call below has one": (
        [(1, None, "chain", {"query": "None", "response": "None"}), (2, 1, "llm", {"query": "q", "response": "a"})],
        ("q", "a", False, 2, 2),
    ),
    "None is the answer where no call has one": (
        [(1, None, "chain", {"query": "q", "response": "None"}), (2, 1, "chain", {"response": "a"}), (3, 1, "llm", {})],
        ("q", "None", False, None, None),
    ),
    "its own texts stay": (
        [(1, None, "chain", {"query": "q", "response": "a"}), (2, 1, "llm", {"query": "x", "response": "y"})],
        ("q", "a", False, None, None),
    ),
}


@pytest.mark.parametrize("case", _BELOW)
def test_a_unit_finds_its_texts(case: str, kit: Any, rows: Any) -> None:
    """In the trace list, in the spans with where they are from, and in the evaluation case."""
    spans, (query, response, error, query_from, response_from) = _BELOW[case]
    store = kit.store()
    kit.send(store, *(kit.span(number, parent, kind, **fields) for number, parent, kind, fields in spans))
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    assert rows(store, "SELECT query, response, error FROM traces") == [(query, response, error)]
    told = "SELECT query, response, mapped_from ->> 'query', mapped_from ->> 'response' FROM spans WHERE span_id = ?"
    sources = tuple(None if one is None else f"span {one:016x}" for one in (query_from, response_from))
    assert rows(store, told, f"{1:016x}") == [(query, response, *sources)]
    found = case_of(store, kit.trace, f"{1:016x}")
    assert found is not None
    assert (found.query, found.response) == (query, response)


def test_every_unit_of_a_trace_finds_its_own_texts(kit: Any, rows: Any) -> None:
    """Rag spans side by side, one without texts and one with a query only; neither hears the other's calls."""
    store = kit.store()
    kit.send(
        store,
        kit.span(1, kind="other"),
        kit.span(2, 1, "rag"),
        kit.span(3, 2, "llm", query="q2", response="a2"),
        kit.span(4, 1, "rag", query="own"),
        kit.span(5, 4, "llm", query="q4", response="a4"),
    )
    Sampler(store, lambda: [ALL]).decide(kit.later(3))
    assert rows(store, "SELECT query, response FROM spans WHERE kind = 'rag' ORDER BY span_id") == [
        ("q2", "a2"),
        ("own", "a4"),
    ]
    assert rows(store, "SELECT count(*) FROM spans") == [(5,)]


def test_late_spans_and_log_events_move_a_units_texts(kit: Any, rows: Any) -> None:
    """A later call gives the answer; what the unit's own span says on a log event wins."""
    store = kit.store()
    sampler = Sampler(store)
    shown = "SELECT query, response FROM traces"
    kit.send(store, kit.span(1), kit.span(2, 1, "llm", query="q", response="a"))
    sampler.decide(kit.later(3))
    assert rows(store, shown) == [("q", "a")]
    kit.send(store, kit.span(3, 1, "llm", query="q", response="b"))
    sampler.decide(kit.later(3))
    assert rows(store, shown) == [("q", "b")]
    event = ContentRecord(trace_id=kit.trace, span_id=f"{1:016x}", time_ns=kit.start_ns, query="own")
    kit.send(store, contents=[event])
    sampler.decide(kit.later(3))
    assert rows(store, shown) == [("own", "b")]
    assert rows(store, "SELECT query, response FROM spans WHERE parent_span_id IS NULL") == [("own", "b")]


def test_an_embedding_model_never_names_the_trace(kit: Any, rows: Any) -> None:
    """A search alone has no model."""
    store = kit.store()
    kit.send(store, kit.span(1), kit.span(2, 1, "embedding", model="text-embedding-3-small"))
    Sampler(store).decide(kit.later(3))
    assert rows(store, "SELECT model FROM traces") == [(None,)]


def test_nested_calls_are_counted_once_before_the_decision_as_after_it(kit: Any, rows: Any) -> None:
    """A wrapper around a call, a second instrumentation beside it, and a call of its own."""
    store = kit.store()
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 5}
    kit.send(
        store,
        kit.span(1, kind="rag"),
        kit.span(2, 1, "llm", **usage),
        kit.span(3, 2, "llm", response_id="r1", **usage),
        kit.span(4, 1, "llm", response_id="r2", **usage),
        kit.span(5, 1, "llm", response_id="r2", **usage),
        kit.span(6, 4, "llm", response_id="r3", **usage),
    )
    counted = "SELECT input_tokens, output_tokens, decided FROM traces"
    assert rows(store, counted) == [(300, 15, False)]
    Sampler(store).decide(kit.later(3))
    assert rows(store, counted) == [(300, 15, True)]


def test_a_trace_of_very_many_units_is_evaluated_in_time(kit: Any) -> None:
    """Spans whose parents never came are units of one trace; its spans are walked once, not once for each unit."""
    store = kit.store()
    kit.send(store, *(kit.span(number, kind="llm") for number in range(1, 4_001)))
    units = [Unit(kit.trace, f"{number:016x}", kit.start) for number in range(1, 4_001)]
    start = time.process_time()
    assert len(cases_of(store, units)) == len(units)
    assert time.process_time() - start < 20
