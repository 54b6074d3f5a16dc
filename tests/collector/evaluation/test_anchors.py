"""Judge drift: frozen answers judged again say whose a move of the live score is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.api.http import plain
from ragpulse_collector.api.operations import declared
from ragpulse_collector.api.status import drift as drift_metrics
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.evaluation import DriftWatch
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.drift import CheckReport, DriftReport, JudgeMove, drift, forget_anchors
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.operations import judges
from ragpulse_collector.refusals import Conflict, NotFound, Refusal
from ragpulse_collector.settings import DriftSettings, Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.retention import prune
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
    """Freeze 200, judge them again as asked, and ask a week later."""
    one = DriftWatch(
        store=store, resolve=lambda _: Versioned(fails_below), ledger=Ledger(store, Caps()), clock=lambda: FROZEN
    )
    assert one.freeze("mine", n=200).verdict == "not checked yet"
    one.run("mine")
    answer: dict[str, Any] = plain(drift(store, Query(window=Window(T0, NOW, 0), now=NOW), "mine"))
    return answer


def test_a_harsher_judge_is_told_from_the_application(store: EmbeddedStore) -> None:
    """The live score fell by 0.2 because the judge did: the anchors fell as far, the application did not move."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=90)
    answer = checked(store, 90)
    assert answer["live"]["move"]["value"] == pytest.approx(-0.2)
    assert answer["verdict"] == "judge moved"
    assert answer["application"]["lo"] < 0.0 < answer["application"]["hi"]
    assert 0.6 < answer["judge_share"] < 1.4
    assert answer["checks"][0]["same_version_and_judge"]


def test_a_worse_application_is_told_from_the_judge(store: EmbeddedStore) -> None:
    """The anchors are judged as before, so the fall is the application's."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=90)
    answer = checked(store, 30)
    move = answer["checks"][0]["judge_move"]
    assert (move["value"], move["changed"], move["n"]) == (0.0, 0, 200)
    assert 0.0 < move["hi"] < 0.05  # 200 unchanged verdicts do not prove that none would change
    assert answer["verdict"] == "application moved"


def test_nothing_moved_is_no_sure_move(store: EmbeddedStore) -> None:
    """Equal traffic, equal judge: there is no share of a move that is none."""
    traffic(store, 300, at=T0 + timedelta(days=3), failing=30)
    answer = checked(store, 30)
    assert (answer["verdict"], answer["judge_share"]) == ("no sure move", None)


def test_the_anchors_outlive_their_traces(store: EmbeddedStore) -> None:
    """Retention takes the traces; the frozen cases are still judged."""
    one = DriftWatch(store=store, resolve=lambda _: Versioned(90), ledger=Ledger(store, Caps()), clock=lambda: FROZEN)
    one.freeze("mine", n=50)
    prune(store, older_than=NOW)
    move = one.run("mine").checks[0].judge_move
    assert move is not None
    assert (move.n, move.value < 0.0) == (50, True)


def test_a_set_needs_verdicts(store: EmbeddedStore) -> None:
    """Nothing scored, nothing frozen, no evaluator named: each says so."""
    one = DriftWatch(store=store, resolve=lambda _: Versioned(90), ledger=Ledger(store, Caps()), clock=lambda: FROZEN)
    with pytest.raises(NotFound, match="at least 10"):
        one.freeze("other")
    with pytest.raises(NotFound, match="no frozen set"):
        one.run("mine")
    draft = next(one for one in declared(judges) if one.name == "POST drift/anchors")
    with pytest.raises(Refusal, match="evaluator is missing"):
        draft.params.parse({})
    assert plain(one.watched()) == {"watched": [], "every": None}


def test_a_judge_that_changes_its_mind_is_found_through_its_recordings(
    collector: Start, loopback_model: StartModel
) -> None:
    """A real collector whose judge answers otherwise by now: the recorded calls are not asked, the judge is."""
    mind = ["YES"]
    model = loopback_model(lambda _: mind[0])
    judge = {"model": f"{model.url}#judge"}
    running = collector(judge=judge, rules=[("live", "faithfulness", 1.0)])
    for number in range(12):
        send(running.url, rag_trace(number, query=f"How tall is tower {number}?", session=f"s{number}"))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'faithfulness' and status = 'ok'", 12)
    assert client.call("POST drift/anchors", {"evaluator": "faithfulness"})["n"] == 12
    mind[0] = "NO"
    answer = client.call("POST drift/run", {"evaluator": "faithfulness"})
    (check,) = answer["checks"]
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
    one.freeze("mine", n=20)
    with pytest.raises(Conflict, match="the day's judge budget"):
        one.run("mine")
    assert one.report("mine").checks == []


class Calls:
    """A receiver of webhooks."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        calls = self.bodies

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self.server.shutdown()
        self.server.server_close()


def test_judges_are_checked_every_week_and_a_moved_one_is_told(store: EmbeddedStore) -> None:
    """Nothing before its time; then once; the alarm names the move, goes out, and stands among the monitors."""
    receiver, clock = Calls(), [FROZEN]
    settings = DriftSettings(every="7d", webhook=f"http://127.0.0.1:{receiver.server.server_port}/")
    monitors = Monitors(store, Settings(drift=settings), clock=lambda: clock[0])
    one = DriftWatch(
        store=store,
        resolve=lambda _: Versioned(90),
        ledger=Ledger(store, Caps()),
        interval=settings.every,
        on_check=monitors.drift,
        clock=lambda: clock[0],
    )
    try:
        assert one.freeze("mine", n=200).next_check == FROZEN + timedelta(days=7)
        clock[0] = FROZEN + timedelta(days=6)
        assert one.run_due() == 0
        clock[0] = FROZEN + timedelta(days=7)
        assert (one.run_due(), one.run_due()) == (1, 0)
        monitors.outbox.deliver("drift: webhook")
    finally:
        receiver.close()
    (report,) = one.watched().watched
    assert (report.state, report.next_check) == ("firing", FROZEN + timedelta(days=14))
    (body,) = receiver.bodies
    assert body["text"].startswith("ALERT drift:mine: the judge of mine moved by -0.")
    (monitor,) = monitors.list().monitors
    assert (monitor.name, monitor.state, (monitor.hi or 0) < 0) == ("drift:mine", "firing", True)
    assert monitor.false_alarm_rate == "at most 2.61 a year"


def test_drift_is_a_metric() -> None:
    """Prometheus sees how far each watched judge moved, and whether that is sure."""
    move = JudgeMove(value=-0.2, lo=-0.3, hi=-0.1, n=50, changed=10)
    check = CheckReport(
        at=T0, version="v1", judge=None, same_version_and_judge=True, judge_move=move, failed=0, cost_usd=None
    )
    new = DriftReport(evaluator="new", version="v1", judge=None, frozen_at=T0, n=50, checks=[])
    text = list(drift_metrics([replace(new, evaluator="mine", state="firing", checks=[check]), new]))
    assert 'ragpulse_judge_drift{evaluator="mine"} -0.2' in "\n".join(text)
    assert 'ragpulse_judge_drift_sure{evaluator="mine"} 1' in "\n".join(text)


def test_sets_of_older_versions_are_read_and_forgotten(store: EmbeddedStore) -> None:
    """A set without users, as the first versions wrote it, keeps its checks; of a forgotten trace nothing is left."""
    trace_ids = [f"{number:032x}" for number in range(1, 4)]
    anchors = [
        {"trace_id": trace_id, "span_id": "1" * 16, "case": {"query": "q", "response": "5"}, "value": 1.0, "pi": 0.5}
        for trace_id in trace_ids
    ]
    frozen = {"evaluator": "mine", "version": "v1", "judge": None, "frozen_at": f"{T0.isoformat()}Z"}
    again = {**frozen, "at": f"{FROZEN.isoformat()}Z", "values": [0.0, None, 1.0], "cost_usd": None}

    def write(tx: Any) -> None:
        rows = [("anchors/mine", json.dumps({**frozen, "anchors": anchors})), ("drift/mine", json.dumps(again))]
        tx.append("meta", ("key", "value"), rows)

    store.write(write).result()
    query = Query(window=Window(T0, NOW, 0), now=NOW)
    (check,) = drift(store, query, "mine").checks
    assert (check.failed, check.judge_move and check.judge_move.n, check.at) == (1, 2, FROZEN)
    assert store.write(lambda tx: forget_anchors(tx, trace_ids[:1])).result() == 1
    report = drift(store, query, "mine")
    assert (report.n, report.checks[0].failed, report.frozen_at) == (2, 1, T0)
    assert trace_ids[0] not in str(store.read("SELECT value FROM raw.meta WHERE key LIKE '%/mine'").rows)
