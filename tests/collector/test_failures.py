"""What went wrong: one kind for each trace, told by what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, open_store, trace_id, uniform

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.sampling.rules import Rule
from ragpulse_collector.store import EmbeddedStore

NOW = T0 + timedelta(hours=1)
RANGE = {"from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z"}


def verdict(evaluator: str, value: float, **more: Any) -> Callable[[Units, int], None]:
    """Store a verdict about a unit."""

    def store(units: Units, number: int) -> None:
        units.decision(number, evaluator)
        units.score(number, evaluator, value, **more)

    return store


NUMBERS = "0 of 1 sentences supported by the contexts. “15 days”: 15 days here, 30 days in the evidence."
BAD = verdict("groundedness", 0.1)
CASES: list[tuple[str | None, dict[str, Any], list[str] | None, list[Callable[[Units, int], None]]]] = [
    ("error", {"error": True, "finish_reason": "length"}, ["a"], [BAD]),
    ("cut_off", {"finish_reason": "MAX_TOKENS", "answer": "empty"}, ["a"], []),
    ("cut_off", {"finish_reason": "length"}, None, []),
    ("empty", {"answer": "empty"}, [], []),
    ("no_context", {"answer": "refused"}, [], []),
    ("refused", {"answer": "refused"}, ["a"], [BAD]),
    (None, {"answer": "refused"}, None, []),
    ("wrong_language", {}, ["a"], [verdict("language", 0.0), BAD]),
    ("contradiction", {}, ["a"], [verdict("groundedness", 0.1, explanation=NUMBERS)]),
    (None, {}, ["a"], [verdict("groundedness", 0.9, explanation=NUMBERS)]),
    ("unused", {}, ["a"], [verdict("context_utilization", 0.0), BAD]),
    ("unsupported", {"latency_ms": 30_000.0}, ["a"], [BAD]),
    ("unsupported", {}, ["a"], [BAD, verdict("groundedness", 0.9, version="v0", created=T0 - timedelta(hours=1))]),
    (None, {}, ["a"], [verdict("groundedness", 0.1, status="error")]),
    (None, {}, ["a"], [verdict("faithfulness", 0.1)]),
    ("slow", {"latency_ms": 30_000.0, "finish_reason": "stop"}, ["a"], [verdict("groundedness", 0.9)]),
    (None, {"latency_ms": 19_000.0, "answer": "answered"}, None, []),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """A trace of each case."""
    opened = open_store(tmp_path_factory.mktemp("failures"))
    units = Units(opened)
    for number, (_, facts, contexts, verdicts) in enumerate(CASES):
        units.unit(number, **{"service": "a" if number % 2 else "b", "user_id": str(number)} | facts)
        if contexts is not None:
            units.contexts(number, contexts)
        for store_verdict in verdicts:
            store_verdict(units, number)
    units.unit(99, at=T0 + timedelta(days=1), error=True)
    units.save()
    reasons = [
        (trace_id(n), facts["finish_reason"]) for n, (_, facts, *_) in enumerate(CASES) if "finish_reason" in facts
    ]
    for name, reason in reasons:
        sql = f"UPDATE raw.trace_facts SET finish_reason = '{reason}' WHERE trace_id = '{name}'::UUID"
        opened.write(lambda tx, sql=sql: tx.execute(sql)).result()
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", sorted({kind for kind, *_ in CASES if kind}))
def test_a_trace_has_its_first_kind(store: EmbeddedStore, kind: str) -> None:
    """Lists find it, the metric counts it."""
    expected = {trace_id(number) for number, case in enumerate(CASES) if case[0] == kind}
    for choice in ({"label.failure": kind}, {"where": f"label.failure = '{kind}'"}):
        listed = trace_list(store, lambda: "", TraceList.parse(choice | RANGE)).traces
        assert {row.trace_id for row in listed} == expected
    answer = ask(store, "metrics", {"name": f"failure_share:{kind}", "step": "all", **RANGE}, clock=lambda: NOW)
    assert answer["series"][0]["points"][0]["value"] == pytest.approx(len(expected) / len(CASES))


def test_what_went_wrong(store: EmbeddedStore) -> None:
    """The largest share first, with intervals; in all and by group."""
    found = ask(store, "failures", RANGE, clock=lambda: NOW)
    assert found["lead"] == "groundedness"
    assert [one["kind"] for one in found["failures"]][:2] == ["cut_off", "unsupported"]
    assert {one["kind"] for one in found["failures"]} == {kind for kind, *_ in CASES if kind}
    assert all(one["lo"] < one["value"] < one["hi"] and one["n"] == len(CASES) for one in found["failures"])
    (later,) = ask(store, "failures", {"from": RANGE["to"], "to": "2026-11-22T00:00Z"})["failures"]
    assert (later["kind"], later["value"], later["previous"]["value"]) == ("error", 1.0, pytest.approx(1 / len(CASES)))
    parts = ask(store, "failures", {**RANGE, "group_by": "service"}, clock=lambda: NOW)["failures"]
    assert {(one["group"]["service"], one["kind"]) for one in parts} == {
        ("a" if number % 2 else "b", kind) for number, (kind, *_) in enumerate(CASES) if kind
    }
    by_kind = ask(store, "metrics", {"name": "requests", "group_by": "label:failure", "step": "all", **RANGE})
    assert sum(line["points"][0]["value"] for line in by_kind["series"]) == len(CASES)


@pytest.mark.parametrize(
    ("ask_for", "says"),
    [
        (lambda store: ask(store, "metrics", {"name": "failure_share:emtpy"}), "did you mean 'empty'"),
        (lambda _: Rule(name="r", evaluators=("a",), rate=0.1, where="label.failure = 'slow'"), "told when it is read"),
    ],
)
def test_mistakes_are_named(store: EmbeddedStore, ask_for: Callable[[EmbeddedStore], object], says: str) -> None:
    """A kind that there is not, and a rule that would decide by what is known later."""
    with pytest.raises(Invalid, match=says):
        ask_for(store)


def test_a_sampled_lead_stands_for_the_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kinds that need no verdict count everything; unsupported answers are those of the drawn, weighted."""
    store = open_store(tmp_path_factory.mktemp("sampled"))
    units, n = Units(store), 4_000
    for number in range(n):
        empty, bad = number % 10 == 0, uniform(number, "bad") < 0.4
        units.unit(number, user_id=str(number), answer="empty" if empty else "answered")
        if units.decision(number, "faithfulness", pi=0.1):
            units.score(number, "faithfulness", 0.1 if bad else 0.9)
    units.add("meta", key="lead", value="2026-11-01T00:00:00 faithfulness")
    units.save()
    found = {one["kind"]: one for one in ask(store, "failures", RANGE, clock=lambda: NOW)["failures"]}
    assert found["empty"]["value"] == pytest.approx(0.1, abs=0.012)
    assert found["unsupported"]["lo"] < 0.36 < found["unsupported"]["hi"]
    assert found["unsupported"]["hi"] - found["unsupported"]["lo"] > 0.05
    store.close()
