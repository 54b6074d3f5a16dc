"""Sessions: listed, shown turn by turn, and what an evaluator sees of the turns before."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import SPAN_ID as SPAN
from stored_units import T0, Units, open_store, trace_id
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.units.cases import Unit, case_of
from ragpulse_collector.units.keys import ScoreKeys
from ragpulse_evaluators import Turn, get_evaluator

if TYPE_CHECKING:
    from pathlib import Path

    from ragpulse_collector.app import Collector

SECOND = 1_000_000_000
START = 60 * SECOND


def turn(number: int, session: str | None, at_s: float, **also: Any) -> list[dict[str, Any]]:
    """A trace of a session that began so many seconds after the first one."""
    start = time.time_ns() - START + int(at_s * SECOND)
    query, response = also.pop("query", f"Question {number}?"), also.pop("response", f"Answer {number}.")
    more = {"session.id": session, **also}
    return rag_trace(number, start_ns=start, query=query, response=response, **more)


@pytest.fixture
def client(collector: Callable[..., Collector]) -> Client:
    """Three turns of one session, one of another, one of none."""
    client = connect(collector().url)
    grounded = "The Eiffel Tower is 330 metres tall."
    send(
        client.url,
        [
            *turn(1, "s/1 '", 0, query="How tall is the Eiffel Tower?", response=grounded, **{"user.id": "ann"}),
            *turn(3, "s/1 '", 20, response="Bananas ripen slowly in Norwegian winters.", error=True),
            *turn(2, "s/1 '", 10, response=grounded),
            *turn(4, "two", 5, response=grounded, **{"tag.tags": ["beta"]}),
            *turn(5, None, 6),
        ],
    )
    until(client, "SELECT * FROM scores WHERE evaluator = 'groundedness'", 5)
    return client


def test_sessions_are_listed(client: Client) -> None:
    """The newest first, the costliest, the one with the worst score; filters keep whole sessions."""
    listed = client.call("GET sessions")
    assert [row["session_id"] for row in listed["sessions"]] == ["s/1 '", "two"]
    first = listed["sessions"][0]
    assert (first["n_turns"], first["user_id"], first["service"], first["error"]) == (3, "ann", "helpdesk", True)
    assert (first["input_tokens"], first["query"]) == (300, "How tall is the Eiffel Tower?")
    assert first["cost_usd"] == pytest.approx(3 * listed["sessions"][1]["cost_usd"])
    assert first["worst_score"] < listed["sessions"][1]["worst_score"]
    for sort, wanted in (("time", "s/1 '"), ("cost", "s/1 '"), ("worst", "s/1 '")):
        params = {"sort": sort, "limit": 1, "evaluator": "groundedness"}
        page = client.call("GET sessions", params)
        assert [row["session_id"] for row in page["sessions"]] == [wanted]
        rest = client.call("GET sessions", params | {"offset": page["next"]})
        assert ([row["session_id"] for row in rest["sessions"]], rest["next"]) == (["two"], None)
    for filters, found in (
        ({"tag": "beta"}, ["two"]),
        ({"error": "true"}, ["s/1 '"]),
        ({"where": "user_id = 'ann'"}, ["s/1 '"]),
        ({"user_id": "nobody"}, []),
    ):
        rows = client.call("GET sessions", filters)["sessions"]
        assert [row["session_id"] for row in rows] == found
        assert all(row["n_turns"] == (3 if row["session_id"] == "s/1 '" else 1) for row in rows)
    assert client.sql("SELECT n_turns FROM sessions ORDER BY session_id").rows() == [{"n_turns": 3}, {"n_turns": 1}]


def test_the_worst_session_fails_a_check(client: Client) -> None:
    """A failed check leads, in sessions and in traces, however low a score is that nobody judges by."""
    client.call("POST scores", {"trace_id": f"{5:032x}", "name": "style", "score": 0.0})
    client.call("POST scores", {"trace_id": f"{6:032x}", "name": "style", "score": 0.0})
    until(client, "SELECT 1 FROM scores WHERE evaluator = 'style'", 2)
    first, last = client.call("GET sessions", {"sort": "worst"})["sessions"]
    assert (first["session_id"], first["failing"]) == ("s/1 '", True)
    assert first["worst_score"] < 0.5
    assert (last["session_id"], last["failing"]) == ("two", False)
    assert last["worst_score"] > 0.9, "not the 0.0 of style"
    listed = client.call("GET traces", {"sort": "worst"})["traces"]
    failed = [any(one["passing"] is False for one in row["scores"].values()) for row in listed]
    assert failed[0]
    assert failed == sorted(failed, reverse=True)
    assert client.call("GET traces", {"sort": "best"})["traces"][0]["trace_id"] != listed[0]["trace_id"]


def test_a_session_shows_its_turns_in_order(client: Client) -> None:
    """With answers, scores and feedback; a session that does not exist is not found."""
    client.call("POST scores", {"trace_id": f"{3:032x}", "name": "thumbs", "score": 1})
    until(client, "SELECT * FROM traces WHERE feedback = 1")
    shown = client.call("GET sessions/two")
    assert (shown["session"]["n_turns"], [row["query"] for row in shown["turns"]]) == (1, ["Question 4?"])
    shown = client.call("GET sessions/s%2F1%20'")
    assert [int(row["trace_id"], 16) - 1 for row in shown["turns"]] == [1, 2, 3]
    assert [row["feedback"] for row in shown["turns"]] == [None, 1.0, None]
    assert all("groundedness" in row["scores"] for row in shown["turns"])
    with pytest.raises(ClientError, match="no session 'three'"):
        client.call("GET sessions/three")


def test_a_case_holds_the_turns_before(tmp_path: Path) -> None:
    """Those of the same session, oldest first, at most twenty; one that names none, or is the first, has none."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(25):
        at = T0.replace(minute=number)
        units.unit(number, at=at, query=f"q{number}", response=f"r{number}", session_id="s")
    units.unit(30, at=T0.replace(minute=30), query="q", response="r")
    units.save()
    try:
        last = case_of(store, trace_id(24), SPAN, request_time=T0.replace(minute=24))
        assert last is not None
        assert last.history == tuple(Turn(query=f"q{n}", response=f"r{n}") for n in range(4, 24))
        for number in (0, 30):
            case = case_of(store, trace_id(number), SPAN)
            assert case is not None
            assert case.history is None
        groundedness, judged = get_evaluator("groundedness"), get_evaluator("faithfulness", judge="openai/x")
        unit, alone = Unit(trace_id(24), SPAN), last.model_copy(update={"history": None})
        assert ScoreKeys()(unit, last, groundedness) == ScoreKeys()(unit, alone, groundedness)
        assert ScoreKeys()(unit, last, judged) != ScoreKeys()(unit, alone, judged)
    finally:
        store.close()


def test_a_session_is_evaluated_once_it_is_quiet(tmp_path: Path) -> None:
    """Its last turn is decided; when it goes on, the later end takes its place. Other rules leave it alone."""
    store = open_store(tmp_path)
    units = Units(store)
    for number, session, minute in ((1, "a", 0), (2, "a", 5), (3, "b", 20), (4, None, 0)):
        units.unit(number, at=T0.replace(minute=minute), session_id=session)
    units.save()
    session = Rule(name="talk", evaluators=("tone",), rate=1.0, unit="session", where="service IS NULL")
    rules = [session, Rule(name="turns", evaluators=("refusal",), rate=1.0)]
    sampler = Sampler(store, lambda: rules, session_quiet_s=600)

    def decided(hour: int, minute: int) -> list[tuple[Any, ...]]:
        sampler.decide(T0.replace(hour=hour, minute=minute))
        return store.read("SELECT trace_id, rule, pi FROM decisions WHERE latest ORDER BY request_time").rows

    first, other = (trace_id(2), "talk", 1.0), (trace_id(3), "talk", 1.0)
    assert decided(12, 14) == []
    assert decided(12, 16) == decided(12, 29) == [first]
    assert decided(12, 31) == [first, other]
    units.unit(5, at=T0.replace(minute=40), session_id="a")
    units.save()
    assert decided(12, 45) == [first, other]
    assert decided(12, 55) == decided(13, 30) == [other, (trace_id(5), "talk", 1.0)]
    jobs = store.read("SELECT evaluator, source FROM raw.eval_jobs").rows
    assert jobs == [("tone", "online")] * 3
    store.close()


def test_a_session_is_evaluated_after_a_stop_of_three_days(tmp_path: Path) -> None:
    """One that went quiet meanwhile is decided once; those from before the rule are left as they are."""
    store = open_store(tmp_path)
    units = Units(store)
    units.unit(1, at=T0 - timedelta(days=2), session_id="before the rule")
    units.unit(2, at=T0, session_id="cut off")
    units.save()
    rules = [Rule(name="talk", evaluators=("tone",), rate=1.0, unit="session")]
    Sampler(store, lambda: rules).decide(T0 + timedelta(minutes=5))
    assert store.read("SELECT * FROM decisions").rows == []
    for day in (3, 3, 4):
        Sampler(store, lambda: rules).decide(T0 + timedelta(days=day))
    assert store.read("SELECT trace_id FROM decisions").rows == [(trace_id(2),)]
    store.close()


def test_a_rule_for_turns_keeps_its_policy() -> None:
    """The new setting changes no rule that does not use it."""
    rule = Rule(name="turns", evaluators=("refusal",), rate=1.0)
    assert rule.policy == "1e8fdd95c550"
    assert rule.changed(unit="session").policy != rule.policy
    assert Rule.stored(rule.changed(unit="session").text).unit == "session"


def test_a_session_rule_over_http(collector: Callable[..., Collector]) -> None:
    """Made over the API, previewed by session, evaluated with the turns before as history."""
    client = connect(collector(session_quiet_s=0.0).url)
    rule = {"name": "talk", "evaluators": ["latency"], "rate": 1.0, "unit": "session"}
    send(client.url, [*turn(1, "one", 0), *turn(2, "one", 10), *turn(3, "two", 5), *turn(4, None, 6)])
    until(client, "SELECT * FROM traces WHERE decided", 4)
    assert client.call("GET rules/preview", rule)["selected_per_day"] == pytest.approx(2 / 7)
    assert client.call("POST rules", rule)["unit"] == "session"
    found = until(client, "SELECT trace_id FROM scores WHERE evaluator = 'latency' AND status = 'ok'", 2)
    assert {int(row["trace_id"], 16) - 1 for row in found} == {2, 3}
