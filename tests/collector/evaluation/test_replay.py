"""Replay: billed before, in order of u, resumable, idempotent."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import ask, replay_of
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.evaluation import RecordedCalls, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.replay import ReplayProgress, Replays
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.runs import Declaration, ReplaySpec, add_run, latest_runs
from ragpulse_evaluators import Case, Evaluator, JudgeCall, evaluator
from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
NOW = T0 + timedelta(hours=1)


@evaluator(version="3")
def long_enough(response: str) -> float:
    """1 where the response has more than one word."""
    return float(" " in response)


class Echo:
    """A judge that answers 1 and costs a cent."""

    id = "echo"

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.asked, self.gate = 0, gate or threading.Event()
        if gate is None:
            self.gate.set()

    async def ask(self, messages: Any, **_: Any) -> list[JudgeCall]:
        self.asked += 1
        while not self.gate.is_set():
            await asyncio.sleep(0.001)
        return [JudgeCall(completion="1", cost_usd=0.01)]


class Judged(Evaluator):
    """Asks its judge once."""

    name = "judged"

    def __init__(self, judge: Echo) -> None:
        super().__init__()
        self.judge = self.asked = judge

    def estimate(self, case: Case) -> Estimate:
        return Estimate(calls=1, input_tokens=100, output_tokens=10)

    async def run(self, case: Case) -> Any:
        raise AssertionError("not reached")

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        calls += await self.asked.ask([])
        return float(calls[0].completion)


def price(_model: str, tokens_in: int, tokens_out: int) -> float:
    """A cent for 100 tokens in."""
    return tokens_in * 1e-4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with 40 units, half of them of service b."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number in range(40):
        units.unit(number, response="yes" if number % 4 else "yes indeed", service="ab"[number % 2])
    units.save()
    yield opened
    opened.close()


@contextmanager
def working(store: EmbeddedStore, one: Evaluator, *, concurrency: int = 4) -> Iterator[tuple[Replays, Worker]]:
    """A worker, and the replays that feed it."""
    worker = Worker(store, lambda _name, **_: one, Ledger(store, Caps(), price=price), gate=Gate(concurrency))
    worker.start()
    try:
        yield Replays(
            store, lambda _name, **_: one, price=price, wake=worker.wake, clock=lambda: NOW, in_force=lambda: [one.name]
        ), worker  # fmt: skip
    finally:
        worker.stop()


def started(replays: Replays, name: str, **params: Any) -> ReplayProgress:
    """A replay that was just started."""
    (run,) = replays.start(replay_of(name, clock=NOW, **params)).replays
    return run


def verdicts(store: EmbeddedStore) -> list[tuple[Any, ...]]:
    """Every stored verdict but for when and how fast it came."""
    return store.read("SELECT * EXCLUDE (created_at, elapsed_ms, run_id) FROM scores ORDER BY score_key").rows


def test_a_replay_scores_what_matches(store: EmbeddedStore) -> None:
    """Filters choose the units, the run ends by itself, and its counts add up."""
    with working(store, long_enough) as (replays, worker):
        run = started(replays, "long_enough", since="7d", where="service = 'a'")
        assert worker.wait_idle(60)
        state = replays.get(run.run_id)
    assert (state.status, state.total, state.done, state.ok, state.cost_usd) == ("done", 20, 20, 20, 0.0)
    assert (state.version, state.pi, state.u_max) == ("3", 1.0, 1.0)
    assert len(verdicts(store)) == 20
    (line,) = ask(store, "metrics", {"name": "quality:long_enough", "step": "1d"}, clock=lambda: NOW)["series"]
    assert line["replayed_where"] == ["service = 'a'"]


def test_a_second_run_does_nothing(store: EmbeddedStore) -> None:
    """Every verdict is reused under its key: no second row, no second call, byte-identical."""
    judge = Echo()
    with working(store, Judged(judge)) as (replays, worker):
        started(replays, "judged")
        assert worker.wait_idle(60)
        before = verdicts(store)
        again = started(replays, "judged")
        assert worker.wait_idle(60)
        state = replays.get(again.run_id)
    assert verdicts(store) == before
    assert (judge.asked, state.done, state.cost_usd, state.status) == (40, 40, 0.0, "done")


def test_the_bill_is_known_before(store: EmbeddedStore) -> None:
    """A dry run tells units, tokens and cost, and writes nothing."""
    replays = Replays(store, lambda _name, **_: Judged(Echo()), price=price, clock=lambda: NOW)
    bill = replays.bill(replay_of("judged", limit=30, clock=NOW))
    assert (bill.count, bill.already, bill.input_tokens, bill.output_tokens) == (30, 0, 3000, 300)
    assert bill.cost_usd == pytest.approx(0.3)
    assert replays.list().replays == []


def test_an_unknown_price_is_null_with_a_reason(store: EmbeddedStore) -> None:
    """Unknown is never zero."""
    replays = Replays(store, lambda _name, **_: Judged(Echo()), price=lambda *_: None, clock=lambda: NOW)
    bill = replays.bill(replay_of("judged", clock=NOW))
    assert bill.cost_usd is None
    assert "echo" in (bill.cost_unknown_reason or "")


def test_a_capped_replay_is_a_random_sample(store: EmbeddedStore) -> None:
    """Ten calls fit under the cap: the ten smallest u are scored, pi says 10 of 40, and the series weighs so."""
    judge = Echo()
    with working(store, Judged(judge), concurrency=1) as (replays, worker):
        run = started(replays, "judged", max_usd=0.1001)
        assert worker.wait_idle(60)
        state = replays.get(run.run_id)
        assert (state.status, state.done, state.pi) == ("capped", 10, 0.25)
        assert state.cost_usd == pytest.approx(0.1)
        scored = store.read("SELECT max(u) FROM raw.run_items").rows[0][0]
        rest = store.read("SELECT min(u) FROM raw.eval_jobs ANTI JOIN raw.run_items USING (job_id)").rows[0][0]
        assert scored < rest == state.u_max
        point = ask(store, "metrics", {"name": "quality:judged", "step": "1d"}, clock=lambda: NOW)["series"][0][
            "points"
        ][-1]
        assert (point["n"], point["n_eff"]) == (10, 10.0)
        replays.resume(run.run_id, max_usd=1.0)
        assert worker.wait_idle(60)
        assert replays.get(run.run_id).status == "done"
    assert judge.asked == 40


def test_a_capped_replay_keeps_what_was_paid(store: EmbeddedStore) -> None:
    """Some cases may cost five times as much: none is overtaken, so the figure rests on every answer that was paid."""

    class Uneven(Judged):
        def estimate(self, case: Case) -> Estimate:
            return Estimate(calls=1, input_tokens=500 if " " in (case.response or "") else 100, output_tokens=10)

    with working(store, Uneven(Echo())) as (replays, worker):
        run = started(replays, "judged", max_usd=0.2)
        assert worker.wait_idle(60)
        state = replays.get(run.run_id)
    assert state.status == "capped"
    assert state.done >= 10
    assert state.pi == state.done / 40


@pytest.mark.parametrize("wants", ["replay", "POST evaluate"])
def test_a_reply_that_could_not_be_read_is_asked_for_again(store: EmbeddedStore, wants: str) -> None:
    """The rule is done with it; who asks for a verdict now gets another reply, not the recorded one. Verdicts stay."""

    class Mumbles(Echo):
        async def ask(self, messages: Any, **_: Any) -> list[JudgeCall]:
            self.asked += 1
            return [JudgeCall(completion="well" if self.asked == 1 else "1", cost_usd=0.01)]

    class Reads(Judged):
        async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
            assert self.judge is not None
            calls += await self.judge.ask([{"role": "user", "content": case.response or ""}])
            if not calls[-1].completion.isdigit():
                raise Unreadable("no verdict in the reply")
            return float(calls[-1].completion)

    mumbling = Mumbles()
    one = Reads(mumbling)
    one.judge = CachedJudge(mumbling, RecordedCalls(store))
    with working(store, one, concurrency=1) as (replays, worker):
        started(replays, "judged", limit=1)
        assert worker.wait_idle(60)
        (trace,) = store.read("SELECT trace_id FROM scores WHERE status = 'invalid'").values
        for _ in range(2):
            if wants == "replay":
                started(replays, "judged", limit=1)
            else:
                Sampler(store).force(trace, None, ["judged"])
                worker.wake()
            assert worker.wait_idle(60)
    statuses = store.read("SELECT status FROM scores ORDER BY created_at").values
    assert (statuses, mumbling.asked) == (["invalid", "ok"], 2)


def test_a_cancelled_replay_stops_and_resumes(store: EmbeddedStore) -> None:
    """Cancelled before the worker starts it does nothing; resumed it finishes."""
    replays = Replays(store, lambda _name, **_: long_enough, clock=lambda: NOW)
    run_id = started(replays, "long_enough").run_id
    assert replays.cancel(run_id).status == "cancelled"
    with working(store, long_enough) as (running, worker):
        assert worker.wait_idle(60)
        assert verdicts(store) == []
        running.resume(run_id)
        assert worker.wait_idle(60)
        assert running.get(run_id).done == 40


def test_a_replay_cancelled_in_the_middle_takes_its_jobs_back(store: EmbeddedStore) -> None:
    """Only what was under way ends. Resumed, the rest is asked, and nothing twice."""
    judge = Echo(threading.Event())
    with working(store, Judged(judge), concurrency=2) as (replays, worker):
        run_id = started(replays, "judged").run_id
        while not judge.asked:
            judge.gate.wait(0.001)
        assert replays.cancel(run_id).status == "cancelled"
        judge.gate.set()
        assert worker.wait_idle(60)
        assert judge.asked < 40
        replays.resume(run_id)
        assert worker.wait_idle(60)
        assert (replays.get(run_id).status, judge.asked, len(verdicts(store))) == ("done", 40, 40)


def test_a_new_version_never_overwrites(store: EmbeddedStore) -> None:
    """Two versions stand side by side as two series."""

    @evaluator(version="4", name="long_enough")
    def longer(response: str) -> float:
        return 0.0

    for one in (long_enough, longer):
        with working(store, one) as (replays, worker):
            started(replays, "long_enough")
            assert worker.wait_idle(60)
    found = ask(store, "metrics", {"name": "quality:long_enough", "step": "1d"}, clock=lambda: NOW)["series"]
    assert [(line["version"], line["points"][-1]["value"]) for line in found] == [("3", 0.25), ("4", 0.0)]


def test_a_changed_evaluator_fails_the_run_instead_of_mixing(store: EmbeddedStore) -> None:
    """A run that was started with another version of the code does not go on under the old name."""
    replays = Replays(store, lambda _name, **_: long_enough, clock=lambda: NOW)
    run_id = started(replays, "long_enough").run_id

    @evaluator(version="4", name="long_enough")
    def longer(response: str) -> float:
        return 0.0

    with working(store, longer) as (running, worker):
        assert worker.wait_idle(60)
        state = running.get(run_id)
    assert state.status == "failed"
    assert "version 4" in (state.reason or "")
    assert verdicts(store) == []


def test_an_unknown_replay_is_a_lookup_error(store: EmbeddedStore) -> None:
    """The API answers 404."""
    replays = Replays(store, lambda _name, **_: long_enough)
    with pytest.raises(NotFound, match="no replay 'nope'"):
        replays.get("nope")
    with pytest.raises(ValueError, match="name at least one"):
        replays.start(replay_of(clock=NOW))


def test_a_replay_survives_kill_9(tmp_path: Path) -> None:
    """Killed in the middle (benchmarks/replay.py kills 20 times): each unit once, within the cap, repeatable."""
    path = Path(__file__).parents[3] / "benchmarks" / "replay.py"
    spec = importlib.util.spec_from_file_location("benchmark_replay", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    outcome = benchmark.killed_replay(tmp_path, kills=1, units=40)
    assert (outcome["status"], outcome["rows"], outcome["units"], outcome["repeat"]) == ("done", 40, 40, 40)
    assert outcome["identical"]
    assert outcome["booked_usd"] <= outcome["cap_usd"]


OLD_SPECS = [
    (None, ReplaySpec()),
    ("{}", ReplaySpec()),
    ('{"limit": null, "matching": 40, "since": "2026-11-14T12:00:00Z", "until": null, "where": null}',
     ReplaySpec(matching=40, since="2026-11-14T12:00:00Z")),
    ('{"judge": "m", "loads": ["a.py"], "prompts": "folder", "limit": 30, "where": "error", "kind": "of later"}',
     ReplaySpec(judge="m", loads=("a.py",), prompts="folder", limit=30, where="error")),
    ('{"external": {"evaluator": "mine", "judge": null, "needs": ["response", "contexts"], "version": "1"}}',
     ReplaySpec(external=Declaration("mine", "1", needs=("response", "contexts")))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spec"), OLD_SPECS)
def test_requests_of_stored_replays_are_read(store: EmbeddedStore, text: str | None, spec: ReplaySpec) -> None:
    """Rows of any version; a run of this version is read as it was written."""
    row = ("old", "mine", "1", None, "done", 1, None, None, T0, text)
    columns = ("run_id", "evaluator", "version", "judge", "status", "total", "max_usd", "error", "created_at", "spec")
    store.write(lambda tx: tx.append("runs", columns, [row])).result()
    run = latest_runs(store)["old"]
    assert run.spec == spec
    store.write(lambda tx: add_run(tx, replace(run, run_id="new"))).result()
    assert latest_runs(store)["new"] == replace(run, run_id="new")


def test_every_evaluation_is_a_run_in_one_list(collector: Start) -> None:
    """A rule, a replay and a check over frozen answers: purpose, population, progress, and where the result is."""
    running = collector(rules=[("live", "refusal", 1.0)])
    for number in range(12):
        send(running.url, rag_trace(number))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'refusal' and status = 'ok'", 12)
    client.call("POST replays", {"evaluators": ["format_adherence"], "since": "1d"})
    client.call("POST drift/anchors", {"evaluator": "refusal"})
    client.call("POST drift/run", {"evaluator": "refusal"})
    listed = eventually(
        lambda: client.call("GET runs")["runs"],
        lambda runs: {run["state"] for run in runs if run["population"]["of"] != "future"} == {"done"},
    )
    shown = [(run["purpose"], run["population"]["of"], run["state"], run["done"], run["total"]) for run in listed]
    assert shown == [
        ("live", "future", "running", None, None),
        ("check", "dataset", "done", 12, 12),
        ("exploratory", "range", "done", 12, 12),
    ]
    assert [run["evaluators"] for run in listed] == [["refusal"], ["refusal"], ["format_adherence"]]
    assert [run["purpose"] for run in client.call("GET runs", {"purpose": "check"})["runs"]] == ["check"]
    assert client.call(f"GET runs/{listed[1]['run_id']}") == listed[1]
    move, result = (client.call(run["result"]) for run in listed[1:])
    assert (move["run_id"], move["failed"], result["n"]) == (listed[1]["run_id"], 0, 12)
    with pytest.raises(ClientError, match="no run 'rule:live' with a result"):
        client.call("GET runs/rule:live/result")
    with pytest.raises(ClientError, match="no run 'x': GET runs lists them"):
        client.call("GET runs/x")
    with pytest.raises(ClientError, match="no replay"):
        client.call(f"POST replays/{listed[1]['run_id']}/use")
    client.call("POST drift/run", {"evaluator": "refusal"})
    checks = eventually(
        lambda: client.call("GET drift", {"evaluator": "refusal"})["checks"], lambda found: len(found) == 2
    )
    left = eventually(
        lambda: (
            client.call("POST prune", {"older_than": "1s"}) and client.call("GET runs", {"purpose": "check"})["runs"]
        ),
        lambda runs: len(runs) == 1,
    )
    assert [(run["run_id"], run["done"]) for run in left] == [(checks[0]["run_id"], 12)], "the newest stays"
    assert client.call("GET drift", {"evaluator": "refusal"})["checks"] == checks[:1]
    for table in ("eval_jobs", "run_items", "scores"):
        assert client.sql(f"select run_id from raw.{table} where run_id = '{listed[1]['run_id']}'").rows() == []
