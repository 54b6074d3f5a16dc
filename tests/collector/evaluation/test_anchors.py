"""Judge drift: frozen answers judged again say whether the judge moved."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.api.http import plain
from ragpulse_collector.api.operations import declared
from ragpulse_collector.api.status import drift as drift_metrics
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.evaluation import DriftWatch, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.drift import CheckReport, DriftReport, JudgeMove
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.operations import judges
from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_collector.settings import DriftSettings, Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.runs import latest_runs
from ragpulse_collector.store.retention import prune
from ragpulse_collector.store.schema import SCHEMA_VERSION
from ragpulse_evaluators import Case, Evaluator
from ragpulse_evaluators.evaluator import Estimate

if TYPE_CHECKING:
    from loopback import LoopbackModel

    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], "LoopbackModel"]
Watch = SimpleNamespace
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


@contextmanager
def watching(store: EmbeddedStore, one: Evaluator, *, ledger: Ledger | None = None, **options: Any) -> Iterator[Watch]:
    """A watch of a judge with the worker that runs its checks; calling it judges again and waits for the report."""
    watch = DriftWatch(store=store, resolve=lambda *_, **__: one, **{"clock": lambda: FROZEN, **options})
    worker = Worker(store, lambda *_, **__: one, ledger or Ledger(store, Caps()), run_done=watch.ended)
    worker.start()

    def again() -> DriftReport:
        watch.run("mine")
        assert worker.wait_idle(60)
        return watch.report("mine")

    try:
        yield SimpleNamespace(watch=watch, again=again, worker=worker)
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("fails_below", "verdict", "changed", "low", "high"),
    # 200 unchanged verdicts do not prove that none would change
    [(90, "judge moved", 40, -0.4, -0.1), (30, "no sure move", 0, -0.05, 0.05)],
)
def test_a_judge_that_moved_is_told_from_one_that_did_not(
    store: EmbeddedStore, fails_below: int, verdict: str, changed: int, low: float, high: float
) -> None:
    """Frozen answers judged again, each pair by its weight; nothing else reads the scores of the run."""
    with watching(store, Versioned(fails_below)) as one:
        assert one.watch.freeze("mine", n=200).verdict == "not checked yet"
        report = one.again()
    move = report.checks[0].judge_move
    assert move is not None
    assert (report.verdict, move.n, report.checks[0].same_version_and_judge) == (verdict, 200, True)
    assert move.changed == pytest.approx(changed, abs=15 if changed else 0)
    assert low < move.lo <= move.value <= move.hi < high or move.changed
    assert low < move.value < high
    run = latest_runs(store, checks=True)[report.checks[0].run_id]
    assert (run.purpose, run.status, run.total) == ("check", "done", 200)
    assert store.read("SELECT count(*) FROM scores WHERE NOT exploratory AND evaluator = 'mine'").rows == [(300,)]


def test_frozen_answers_outlive_their_traces(store: EmbeddedStore) -> None:
    """Retention takes the traces; the frozen cases are judged, and what was found stays."""
    with watching(store, Versioned(90)) as one:
        one.watch.freeze("mine", n=50)
        prune(store, older_than=NOW)
        first = one.again().checks[0].judge_move
        prune(store, older_than=NOW)
        kept = one.watch.report("mine").checks[0].judge_move
    assert first is not None
    assert (first.n, first.value < 0.0, kept) == (50, True, first)


def test_a_killed_check_goes_on_and_asks_nothing_twice(store: EmbeddedStore) -> None:
    """The worker stops in the middle of a check; the next process ends the same run."""
    asked: list[str] = []

    class Counting(Versioned):
        def __init__(self, most: int) -> None:
            super().__init__(90)
            self._most = most

        async def run(self, case: Case) -> float:
            if len(asked) >= self._most:
                await asyncio.sleep(1000)
            asked.append(case.response or "")
            return float(super().run(case))

    with watching(store, Counting(20)) as one:
        one.watch.freeze("mine", n=50)
        run_id = one.watch.run("mine").running
        while store.read("SELECT count(*) FROM raw.scores WHERE source = 'check'").value < 20:
            time.sleep(0.01)
        one.worker.stop(0.0)
    with watching(store, Counting(50)) as one:
        assert one.worker.wait_idle(60)
        (check,) = one.watch.report("mine").checks
    assert (check.run_id, len(asked), len(set(asked))) == (run_id, 50, 50)


def test_a_set_needs_verdicts(store: EmbeddedStore) -> None:
    """Nothing scored, nothing frozen, no evaluator named: each says so."""
    one = DriftWatch(store=store, resolve=lambda *_, **__: Versioned(90), clock=lambda: FROZEN)
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
    assert client.call("POST drift/run", {"evaluator": "faithfulness"})["running"]
    checked = {"evaluator": "faithfulness"}
    answer = eventually(lambda: (found := client.call("GET drift", checked))["checks"] and found)
    (check,) = answer["checks"]
    assert (check["judge_move"]["value"], check["judge_move"]["changed"], check["failed"]) == (-1.0, 12, 0)
    assert answer["verdict"] == "judge moved"
    assert len(client.scores("evaluator = 'faithfulness' and source = 'online'").rows()) == 12
    assert client.call("GET replays")["replays"] == []
    with pytest.raises(ClientError, match="no frozen set"):
        client.call("GET drift", {"evaluator": "refusal"})


def test_a_spent_budget_stops_a_check(store: EmbeddedStore) -> None:
    """The day's cap holds for frozen answers too: the run ends as capped, and is no check."""

    class Paid(Versioned):
        judge = SimpleNamespace(id="m", model="m")

        def estimate(self, case: Case) -> Estimate:
            return Estimate(calls=1, input_tokens=100)

    ledger = Ledger(store, Caps(usd_per_day=0.5), price=lambda *_: 1.0)
    with watching(store, Paid(90), ledger=ledger) as one:
        one.watch.freeze("mine", n=20)
        assert one.again().checks == []
    (run,) = latest_runs(store, checks=True).values()
    assert run.status == "capped"
    assert "the day's judge budget" in (run.error or "")


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
    try:
        options: dict[str, Any] = {"interval": settings.every, "on_check": monitors.drift, "clock": lambda: clock[0]}
        with watching(store, Versioned(90), **options) as one:
            assert one.watch.freeze("mine", n=200).next_check == FROZEN + timedelta(days=7)
            clock[0] = FROZEN + timedelta(days=6)
            assert one.watch.run_due() == 0
            clock[0] = FROZEN + timedelta(days=7)
            assert (one.watch.run_due(), one.watch.run_due()) == (1, 0)
            assert one.worker.wait_idle(60)
            (report,) = one.watch.watched().watched
        monitors.outbox.deliver("drift: webhook")
    finally:
        receiver.close()
    assert report.state == "firing"
    assert report.next_check == report.checks[0].at + timedelta(days=7)
    (body,) = receiver.bodies
    assert body["text"].startswith("ALERT drift:mine: the judge of mine moved by -0.")
    (monitor,) = monitors.list().monitors
    assert (monitor.name, monitor.state, (monitor.hi or 0) < 0) == ("drift:mine", "firing", True)
    assert monitor.false_alarm_rate == "at most 2.61 a year"


def test_drift_is_a_metric() -> None:
    """Prometheus sees how far each watched judge moved, and whether that is sure."""
    move = JudgeMove(value=-0.2, lo=-0.3, hi=-0.1, n=50, changed=10)
    check = CheckReport(
        at=T0,
        run_id="r",
        version="v1",
        judge=None,
        same_version_and_judge=True,
        judge_move=move,
        failed=0,
        cost_usd=None,
    )
    new = DriftReport(
        evaluator="new", version="v1", judge=None, frozen_at=T0, dataset="d", n=50, checks=[], running=None
    )
    text = list(drift_metrics([replace(new, evaluator="mine", state="firing", checks=[check]), new]))
    assert 'ragpulse_judge_drift{evaluator="mine"} -0.2' in "\n".join(text)
    assert 'ragpulse_judge_drift_sure{evaluator="mine"} 1' in "\n".join(text)


def test_sets_of_older_versions_become_datasets_and_runs(tmp_path: Path) -> None:
    """What version 13 kept as texts: the newest set, its check and the trace ids by which a person is forgotten."""
    trace_ids = [f"{number:032x}" for number in range(1, 4)]
    anchors = [
        {"trace_id": trace_id, "span_id": "1" * 16, "case": {"query": f"q{trace_id}", "response": "5"}, "value": 1.0,
         "pi": 0.5} for trace_id in trace_ids
    ]  # fmt: skip
    frozen = {"evaluator": "mine", "version": "v1", "judge": None, "frozen_at": f"{T0.isoformat()}Z"}
    again = {**frozen, "at": f"{FROZEN.isoformat()}Z", "values": [0.0, None, 1.0], "cost_usd": 0.3}
    with closing(open_store(tmp_path)) as store:
        (path,) = tmp_path.glob("*.duckdb")

        def write(tx: Any) -> None:
            rows = [("anchors/mine", json.dumps({**frozen, "anchors": anchors})), ("drift/mine", json.dumps(again))]
            tx.append("meta", ("key", "value"), rows)
            tx.execute("UPDATE raw.meta SET value = '13' WHERE key = 'schema_version'")

        store.write(write).result()
    with closing(open_store(tmp_path)) as store:
        one = DriftWatch(store=store, resolve=lambda *_, **__: Versioned(90), clock=lambda: NOW)
        report = one.report("mine")
        (check,) = report.checks
        assert (report.n, report.version, report.frozen_at) == (3, "v1", T0)
        assert (check.failed, check.judge_move and check.judge_move.n, check.at) == (1, 2, FROZEN)
        assert check.cost_usd == pytest.approx(0.3)
        assert store.read("SELECT count(*) FROM raw.meta WHERE key LIKE '%/mine'").value == 0
    assert path.with_name(f"{path.name}.before-v{SCHEMA_VERSION}").exists()
