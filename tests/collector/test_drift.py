"""Judge drift: frozen answers judged again say whose a move of the live score is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import T0, Units, open_store
from traffic import rag_trace, send

from ragpulse_collector.budget import Caps, Ledger
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.metrics.drift import drift
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.retention import prune
from ragpulse_collector.worker import DriftWatch
from ragpulse_evaluators import Case, Evaluator
from ragpulse_evaluators.evaluator import Estimate

if TYPE_CHECKING:
    from loopback import LoopbackModel

    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], "LoopbackModel"]
FROZEN, NOW = T0 + timedelta(days=1), T0 + timedelta(days=8)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A week at 0.9 before the freezing, and none after it yet."""
    opened = open_store(tmp_path)
    traffic(opened, 0, at=T0, failing=30)
    yield opened
    opened.close()


def traffic(store: EmbeddedStore, first: int, *, at: Any, failing: int) -> None:
    """300 judged answers, one failing in every so many."""
    units = Units(store)
    for number in range(first, first + 300):
        units.scored(number, "mine", float(number % 300 >= failing), at=at, facts={"response": str(number % 300)})
    units.save()


class Versioned(Evaluator):
    """Scores as `v1`, the version of the stored verdicts."""

    name, version = "mine", "v1"

    def __init__(self, fails_below: int) -> None:
        super().__init__()
        self._fails_below = fails_below

    def run(self, case: Case) -> float:
        return float(int(case.response or "0") >= self._fails_below)


def checked(store: EmbeddedStore, fails_below: int) -> dict[str, Any]:
    """Freeze 200, judge them again as told, and ask a week later."""
    one = DriftWatch(
        store=store, resolve=lambda _: Versioned(fails_below), ledger=Ledger(store, Caps()), clock=lambda: FROZEN
    )
    assert one.freeze({"evaluator": "mine", "n": 200})["verdict"] == "not checked yet"
    one.run({"evaluator": "mine"})
    return drift(store, {"evaluator": "mine"}, clock=lambda: NOW)


def test_a_harsher_judge_is_told_from_the_application(store: EmbeddedStore) -> None:
    """The live score fell by 0.2 because the judge did: the anchors fell as far, the application did not move."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=90)
    told = checked(store, 90)
    assert told["live"]["move"]["value"] == pytest.approx(-0.2)
    assert told["verdict"] == "judge moved"
    assert told["application"]["lo"] < 0.0 < told["application"]["hi"]
    assert 0.6 < told["judge_share"] < 1.4
    assert told["checks"][0]["same_version_and_judge"]


def test_a_worse_application_is_told_from_the_judge(store: EmbeddedStore) -> None:
    """The anchors are judged as before, so the fall is the application's."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=90)
    told = checked(store, 30)
    move = told["checks"][0]["judge_move"]
    assert (move["value"], move["changed"], move["n"]) == (0.0, 0, 200)
    assert 0.0 < move["hi"] < 0.05  # 200 unchanged verdicts do not prove that none would change
    assert told["verdict"] == "application moved"


def test_nothing_moved_is_no_sure_move(store: EmbeddedStore) -> None:
    """Equal traffic, equal judge: no share is told of a move that is none."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=30)
    told = checked(store, 30)
    assert (told["verdict"], told["judge_share"]) == ("no sure move", None)


def test_the_anchors_outlive_their_traces(store: EmbeddedStore) -> None:
    """Retention takes the traces; the frozen cases are still judged."""
    one = DriftWatch(store=store, resolve=lambda _: Versioned(90), ledger=Ledger(store, Caps()), clock=lambda: FROZEN)
    one.freeze({"evaluator": "mine", "n": 50})
    prune(store, older_than=NOW, max_bytes=10**12)
    move = one.run({"evaluator": "mine"})["checks"][0]["judge_move"]
    assert (move["n"], move["value"] < 0.0) == (50, True)


def test_a_set_needs_verdicts(store: EmbeddedStore) -> None:
    """Nothing scored, nothing frozen, no evaluator named: each says so."""
    one = DriftWatch(store=store, resolve=lambda _: Versioned(90), ledger=Ledger(store, Caps()), clock=lambda: FROZEN)
    with pytest.raises(LookupError, match="at least 10"):
        one.freeze({"evaluator": "other"})
    with pytest.raises(LookupError, match="no frozen set"):
        one.run({"evaluator": "mine"})
    with pytest.raises(ValueError, match="name one"):
        one.report({})


def test_a_judge_that_changes_its_mind_is_found_through_its_recordings(
    collector: Start, loopback_model: StartModel
) -> None:
    """A real collector whose judge answers otherwise by now: the recorded calls are not asked, the judge is."""
    mind = ["YES"]
    model = loopback_model(lambda _: mind[0])
    judge = {"model": "openai/judge", "api_base": model.url}
    running = collector(judge=judge, rules=[("live", "faithfulness", 1.0)])
    for number in range(12):
        send(running.url, rag_trace(number, query=f"How tall is tower {number}?"))
    client, deadline = connect(running.url), time.monotonic() + 30
    while len(client.scores("evaluator = 'faithfulness' and status = 'ok'").rows()) < 12:
        assert time.monotonic() < deadline, "not judged in time"
        time.sleep(0.05)
    assert client.call("POST drift/anchors", {"evaluator": "faithfulness"})["n"] == 12
    mind[0] = "NO"
    told = client.call("POST drift/run", {"evaluator": "faithfulness"})
    (check,) = told["checks"]
    assert (check["judge_move"]["value"], check["judge_move"]["changed"], check["failed"]) == (-1.0, 12, 0)
    assert client.call("GET drift", {"evaluator": "faithfulness"})["verdict"] == "judge moved"
    assert len(client.scores("evaluator = 'faithfulness'").rows()) == 12
    with pytest.raises(ClientError, match="no frozen set"):
        client.call("GET drift", {"evaluator": "refusal"})


def test_a_spent_budget_judges_nothing_again(store: EmbeddedStore) -> None:
    """The day's cap holds for anchors too: refused as a whole, and no check is stored."""

    class Paid(Versioned):
        judge = SimpleNamespace(id="m", model="m")

        def estimate(self, case: Case) -> Estimate:
            return Estimate(calls=1, input_tokens=100)

    ledger = Ledger(store, Caps(usd_per_day=0.5), price=lambda *_: 1.0)
    one = DriftWatch(store=store, resolve=lambda _: Paid(90), ledger=ledger, concurrency=1, clock=lambda: FROZEN)
    one.freeze({"evaluator": "mine", "n": 20})
    with pytest.raises(PermissionError, match="the day's judge budget"):
        one.run({"evaluator": "mine"})
    assert one.report({"evaluator": "mine"})["checks"] == []
