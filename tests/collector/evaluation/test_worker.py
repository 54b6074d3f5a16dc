"""The worker: jobs become scores, once each, whatever fails in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from loopback import LoopbackModel
from served import Served
from stored_units import SPAN_ID, T0, Units, given_up_jobs, open_store, trace_id
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.api.status import Status
from ragpulse_collector.conventions import decode
from ragpulse_collector.evaluation import AttemptOptions, Worker, pending
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.jobs import LONG_AGO, Job
from ragpulse_collector.evaluation.judge import RecordedCalls
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.retention import forget
from ragpulse_evaluators import Case, Evaluator, JudgeCall, evaluator
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.providers import HTTPJudge
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge
from ragpulse_evaluators.runner import Retry


@evaluator
def said(response: str) -> float:
    """1 where the response says anything."""
    return float(bool(response))


class Judged(Evaluator):
    """Asks its judge once; each reply costs a cent."""

    name = "judged"

    def __init__(self, judge: Any) -> None:
        super().__init__()
        self.judge = judge

    def estimate(self, case: Case) -> Estimate:
        return Estimate(calls=1, input_tokens=1000, output_tokens=0)

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        assert self.judge is not None
        calls += await self.judge.ask([{"role": "user", "content": case.response or ""}])
        return float(calls[-1].completion)

    async def run(self, case: Case) -> Any:
        raise AssertionError("not reached")


class Replies:
    """A judge that gives a reply or raises it; knows the most calls it saw at once."""

    id = "replies"

    def __init__(self, *replies: Any, gate: threading.Event | None = None, usd: float = 0.01) -> None:
        self.replies, self.gate, self.usd = list(replies), gate, usd
        self.asked = self.at_once = self.most = 0

    async def ask(self, messages: Any, **_: Any) -> list[JudgeCall]:
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        while self.gate is not None and not self.gate.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        self.at_once -= 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return [JudgeCall(prompt="p", completion=str(reply), model="replies", cost_usd=self.usd)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@contextmanager
def working(
    store: EmbeddedStore,
    *evaluators: Evaluator,
    caps: Caps | None = None,
    at_once: int = 4,
    resolve: Callable[..., Evaluator] | None = None,
    **options: Any,
) -> Iterator[Worker]:
    """A started worker over these evaluators."""
    known = {one.name: one for one in evaluators}
    ledger = Ledger(store, caps or Caps(), price=lambda _model, tokens_in, _out: tokens_in * 1e-5)
    options = {
        "gate": Gate(at_once),
        "options": AttemptOptions(retry=Retry(first_s=0.001)),
        "clock": lambda: T0,
        **options,
    }
    worker = Worker(store, resolve or (lambda name, **_: known[name]), ledger, **options)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def queue(store: EmbeddedStore, names: tuple[str, ...], count: int) -> None:
    """Store `count` decided units with one job per name."""
    units = Units(store)
    for number in range(count):
        units.unit(number, response="yes" if number else "")
        for name in names:
            units.decision(number, name)
            units.job(number, name)
    units.save()


def scores(store: EmbeddedStore) -> list[tuple[Any, ...]]:
    """What was scored: trace, evaluator, status, normalized."""
    return store.read("SELECT trace_id, evaluator, status, normalized FROM scores ORDER BY ALL").rows


def test_jobs_become_scores(store: EmbeddedStore) -> None:
    """Every pending job gets one row with the request's time, and a restart finds nothing to do."""
    queue(store, ("said",), 100)
    with working(store, said) as worker:
        assert worker.wait_idle(90)
        assert worker.counts["ok"] == 100
    rows = scores(store)
    assert len(rows) == len({row[0] for row in rows}) == 100
    assert {row[3] for row in rows if row[0] == trace_id(0)} == {0.0}
    with working(store, said) as worker:
        assert worker.wait_idle(90)
        assert not worker.counts


def test_a_missing_field_is_skipped_with_its_name(store: EmbeddedStore) -> None:
    """An evaluator that needs a reference says so, once, as a final result."""

    @evaluator
    def against(response: str, reference: str) -> bool:
        return response == reference

    queue(store, ("against",), 1)
    with working(store, against) as worker:
        assert worker.wait_idle(90)
    assert store.read("SELECT status, explanation FROM scores").rows == [("skipped", "missing: reference")]


def test_nothing_is_stored_of_a_trace_that_is_forgotten_meanwhile(store: EmbeddedStore) -> None:
    """Explanation and prompt of an evaluation that still ran would quote the person; other traces are scored."""
    queue(store, ("judged",), 2)
    replies = Replies("1", gate=threading.Event())
    with working(store, Judged(CachedJudge(replies, RecordedCalls(store)))) as worker:
        eventually(lambda: replies.asked == 2)
        forget(store, "trace", trace_id(1), also={}, actor="a")
        assert replies.gate is not None
        replies.gate.set()
        assert worker.wait_idle(90)
    assert scores(store) == [(trace_id(0), "judged", "ok", 1.0)]
    assert store.read("SELECT count(*) FROM raw.judge_calls").rows == [(0,)]  # both had the prompt of the forgotten


def test_a_deleted_span_is_skipped(store: EmbeddedStore) -> None:
    """A job whose span retention has deleted ends instead of waiting for ever."""
    units = Units(store)
    units.job(1, "said")
    units.save()
    with working(store, said) as worker:
        assert worker.wait_idle(90)
    assert store.read("SELECT status, explanation FROM scores").rows == [("skipped", "missing: the stored span")]


def test_errors_are_retried_with_backoff(store: EmbeddedStore) -> None:
    """Two refusals and an answer: two error rows with their attempts, then the score."""
    queue(store, ("judged",), 1)
    judge = Replies(OSError("429"), OSError("503"), 1)
    with working(store, Judged(judge)) as worker:
        assert worker.wait_idle(90)
    rows = store.read("SELECT status, attempt FROM raw.scores ORDER BY attempt").rows
    assert rows == [("error", 1), ("error", 2), ("ok", 3)]


def test_a_job_that_always_fails_is_a_dead_letter(store: EmbeddedStore) -> None:
    """After five errors it is visible with its reason and stays quiet over a restart."""
    queue(store, ("judged",), 1)
    judge = Replies(OSError("down"))
    for _ in range(2):
        with working(store, Judged(judge)) as worker:
            assert worker.wait_idle(90)
    ((attempts, reason),) = given_up_jobs(store)
    assert (judge.asked, attempts) == (5, 5)
    assert "down" in reason


def test_an_unreadable_reply_is_invalid_and_final(store: EmbeddedStore) -> None:
    """A reply that is no verdict is never asked for again and never becomes a number."""
    queue(store, ("judged",), 1)
    judge = Replies("7")
    with working(store, Judged(judge)) as worker:
        assert worker.wait_idle(90)
    assert [row[2:] for row in scores(store)] == [("invalid", None)]
    assert judge.asked == 1


def test_an_unknown_evaluator_is_an_error_that_says_so(store: EmbeddedStore) -> None:
    """A rule that names an evaluator that is gone leaves dead letters, not a hanging queue."""

    def resolve(name: str, **_: Any) -> Evaluator:
        raise Invalid(f"no evaluator {name!r}")  # as `Catalog.resolve` does

    queue(store, ("gone",), 1)
    with working(store, resolve=resolve) as worker:
        assert worker.wait_idle(90)
    ((_, reason),) = given_up_jobs(store)
    assert "gone" in reason


def test_concurrency_is_bounded(store: EmbeddedStore) -> None:
    """No more judge calls run at once than allowed, and free evaluators are not held up by them."""
    queue(store, ("judged", "said"), 20)
    gate = threading.Event()
    judge = Replies(1, gate=gate)
    with working(store, said, Judged(judge), at_once=3) as worker:
        for _ in range(2000):
            if (worker.counts["ok"], judge.at_once) == (20, 3):
                break
            gate.wait(0.005)
        assert (worker.counts["ok"], judge.at_once) == (20, 3)
        gate.set()
        assert worker.wait_idle(90)
    assert (judge.most, judge.asked) == (3, 20)


class Waits(Evaluator):
    """Waits for something that is no judge."""

    def __init__(self, name: str, event: threading.Event) -> None:
        super().__init__()
        self.name, self.event = name, event

    async def run(self, case: Case) -> float:
        while not self.event.is_set():
            await asyncio.sleep(0.001)
        return float(bool(case))


def test_an_evaluator_that_stalls_holds_up_no_other(store: EmbeddedStore) -> None:
    """Neither by its slots nor by its backlog, which is the older one; Health tells how long it has waited."""
    never, at_once = threading.Event(), threading.Event()
    at_once.set()
    queue(store, ("stalled",), 100)
    queue(store, ("quick", "said"), 20)
    with working(store, Waits("stalled", never), Waits("quick", at_once), said):
        done = "SELECT evaluator, count(*) FROM raw.scores GROUP BY 1 ORDER BY 1"
        eventually(lambda: store.read(done).rows, lambda rows: rows == [("quick", 20), ("said", 20)])
        (waiting,) = Status(store, Settings(), Counters())().evaluations.waiting
        assert (waiting.evaluator, waiting.pending) == ("stalled", 100)
        assert waiting.oldest_s > 0
        never.set()


def test_two_jobs_for_one_verdict_ask_once(store: EmbeddedStore) -> None:
    """A forced job beside the online one for the same case reuses its verdict."""
    queue(store, ("judged",), 1)
    units = Units(store)
    units.add("eval_jobs", job_id="ab" * 16, trace_id=trace_id(0), span_id=int(SPAN_ID, 16), request_time=T0,
              evaluator="judged", run_id=None, source="forced", u=0.5, created_at=T0)  # fmt: skip
    units.save()
    judge = Replies(1)
    with working(store, Judged(judge)) as worker:
        assert worker.wait_idle(90)
    assert (judge.asked, len(scores(store))) == (1, 1)


def test_the_budget_is_reserved_and_settled(store: EmbeddedStore) -> None:
    """The ledger holds what was really spent, and a reservation is released by its settlement."""
    queue(store, ("judged",), 3)
    with working(store, Judged(Replies(1)), caps=Caps(usd_per_day=1.0)) as worker:
        assert worker.wait_idle(90)
    ledger = Ledger(store, Caps())
    assert ledger.spent(T0) == pytest.approx(0.03)


def test_what_a_metric_with_its_own_model_spent_counts(store: EmbeddedStore) -> None:
    """Its cost is known afterwards only: nothing is reserved, and the day's account holds it."""

    class Paying(Judged):
        name = "paying"

        async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
            calls.append(JudgeCall(model="theirs", cost_usd=0.01))
            return 1.0

    queue(store, ("paying",), 3)
    with working(store, Paying(None), caps=Caps(usd_per_day=1.0)) as worker:
        assert worker.wait_idle(90)
    assert Ledger(store, Caps()).spent(T0) == pytest.approx(0.03)


def test_a_class_that_estimates_nothing_is_bound_by_the_cap(store: EmbeddedStore) -> None:
    """A user's class that asks a judge is taken to ask several times with the whole case."""

    class Plain(Judged):
        name = "plain"
        wants_judge = True
        needs = frozenset({"response"})
        estimate = Evaluator.estimate

    queue(store, ("plain",), 2)
    judge = Replies(1)
    with working(store, Plain(judge), caps=Caps(usd_per_day=0.001)) as worker:
        assert worker.wait_idle(90)
    assert (judge.asked, worker.counts["dropped"]) == (0, 2)


def test_a_case_that_cost_more_than_reserved_is_learned_from(store: EmbeddedStore) -> None:
    """Reserved at a cent and billed at five: then five are reserved, and the cap of 38 cents holds."""
    queue(store, ("judged",), 9)
    judge = Replies(1, usd=0.05)
    with working(store, Judged(judge), caps=Caps(usd_per_day=0.40), at_once=1) as worker:
        assert worker.wait_idle(90)
    assert (judge.asked, Ledger(store, Caps()).spent(T0)) == (7, pytest.approx(0.35))


def test_the_cap_drops_what_it_cannot_pay_and_says_so(store: EmbeddedStore) -> None:
    """With money for two calls, two are made; the rest are `budget` decisions with their pi kept."""
    queue(store, ("judged",), 5)
    judge = Replies(1)
    with working(store, Judged(judge), caps=Caps(usd_per_day=0.022), at_once=1) as worker:
        assert worker.wait_idle(90)
        assert worker.counts["dropped"] == 3
    rows = store.read("SELECT sampled, reason, pi, count(*) FROM raw.decisions WHERE latest GROUP BY ALL ORDER BY ALL")
    assert rows.rows == [(False, "budget", 1.0, 3), (True, "sampled", 1.0, 2)]
    assert judge.asked == 2
    with working(store, Judged(judge), caps=Caps(usd_per_day=10.0)) as worker:
        assert worker.wait_idle(90)
    assert judge.asked == 2


def test_a_job_that_does_not_fit_waits_for_cheaper_ones_under_way(store: EmbeddedStore) -> None:
    """Reserved at a cent, each call costs a tenth: concurrency does not make the cap refuse what it can pay."""
    queue(store, ("judged",), 20)
    judge = Replies(1, usd=0.001)
    with working(store, Judged(judge), caps=Caps(usd_per_day=0.031)) as worker:
        assert worker.wait_idle(90)
        assert (worker.counts["ok"], worker.counts["dropped"]) == (20, 0)
    assert Ledger(store, Caps()).spent(T0) == pytest.approx(0.02)


def test_several_calls_a_case_stay_within_the_gate(store: EmbeddedStore) -> None:
    """An evaluator that asks three questions side by side does not exceed what the provider allows."""
    queue(store, ("judged",), 10)
    judge, gate = Replies(1), Gate(2)

    class Asking(Judged):
        async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
            assert self.judge is not None
            found = await asyncio.gather(*(self.judge.ask([{"role": "user", "content": "?"}]) for _ in range(3)))
            calls += [call for (call,) in found]
            return float(calls[-1].completion)

    with working(store, Asking(GatedJudge(judge, gate)), gate=gate) as worker:
        assert worker.wait_idle(90)
    assert (judge.most, judge.asked) == (2, 30)


def test_judge_calls_are_spans_of_ragpulse_beside_the_traffic(store: EmbeddedStore) -> None:
    """Below the evaluated span, readable as spans, in nobody's traffic; they go with the verdict."""
    queue(store, ("judged", "said"), 2)
    before, unit = (store.read(f"SELECT {what} FROM spans").rows for what in ("count(*)", "min(span_id)"))
    with working(store, Judged(Replies(1)), said) as worker:
        assert worker.wait_idle(90)
    sql = "SELECT service, kind, name, parent_span_id, span_id, cost_usd, response FROM judge_spans"
    found = {row[1]: row for row in store.read(f"{sql} WHERE trace_id = ?", [trace_id(1)]).rows}
    assert set(found) == {"evaluator", "llm"}
    assert found["evaluator"][:4] == ("ragpulse", "evaluator", "evaluate judged", unit[0][0])
    assert found["llm"][2:4] == ("chat replies", found["evaluator"][4])
    assert found["llm"][5:] == (0.01, "1")
    assert store.read("SELECT count(*) FROM spans").rows == before
    store.write(lambda tx: tx.execute("DELETE FROM raw.scores")).result()
    assert store.read("FROM judge_spans").rows == []


def test_a_stopped_worker_can_start_again(store: EmbeddedStore) -> None:
    """The lease may be lost and won: what was claimed before is claimed again, in another event loop."""
    queue(store, ("judged",), 30)
    gate = threading.Event()
    judge = Replies(1, gate=gate)
    with working(store, Judged(judge), at_once=2) as worker:
        while judge.at_once < 2:
            gate.wait(0.001)
        worker.stop(timeout_s=0.0)
        gate.set()
        worker.start()
        assert worker.wait_idle(90)
    assert len({row[0] for row in scores(store)}) == len(scores(store)) == 30


def test_a_stop_whose_thread_ends_between_two_calls_raises_nothing(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll may see the stop, and the loop may close, before the stop has said all that it says."""
    call = asyncio.SelectorEventLoop.call_soon_threadsafe
    closed: list[bool] = []

    def call_and_wait(loop: asyncio.AbstractEventLoop, callback: Callable[[], None], *args: Any, **kwargs: Any) -> Any:
        handle = call(loop, callback, *args, **kwargs)
        if threading.current_thread() is threading.main_thread():
            closed.append(eventually(loop.is_closed))
        return handle

    with working(store, poll_s=0.001):
        monkeypatch.setattr(asyncio.SelectorEventLoop, "call_soon_threadsafe", call_and_wait)
    assert closed == [True]


def test_a_forced_job_without_money_is_a_dead_letter(store: EmbeddedStore) -> None:
    """It ends, says why, and leaves the decision and its weight alone."""
    queue(store, ("judged",), 1)
    store.write(lambda tx: tx.execute("UPDATE raw.eval_jobs SET u = NULL")).result()
    with working(store, Judged(Replies(1)), caps=Caps(usd_per_day=0.001)) as worker:
        assert worker.wait_idle(90)
    ((_, reason),) = given_up_jobs(store)
    assert "budget" in reason
    assert store.read("SELECT sampled, reason FROM raw.decisions WHERE latest").rows == [(True, "sampled")]


def test_an_unknown_price_is_refused_under_a_cap(store: EmbeddedStore) -> None:
    """Where the price is unknown, a cap that cannot be kept refuses instead of counting zero."""
    queue(store, ("judged",), 1)
    judge = Replies(1)
    ledger = Ledger(store, Caps(usd_per_day=1.0), price=lambda *_: None)
    worker = Worker(store, lambda _name, **_: Judged(judge), ledger, clock=lambda: T0)
    worker.start()
    assert worker.wait_idle(90)
    worker.stop()
    assert (judge.asked, worker.counts["dropped"]) == (0, 1)


def test_jobs_that_arrive_later_are_found(store: EmbeddedStore) -> None:
    """`wake` is enough to take up what was decided after the start."""
    with working(store, said, poll_s=60.0) as worker:
        assert worker.wait_idle(90)
        queue(store, ("said",), 3)
        assert worker.wait_idle(90)
        assert worker.counts["ok"] == 3


def test_stopping_leaves_the_rest_pending(store: EmbeddedStore) -> None:
    """A stop in the middle loses nothing: the next worker finishes, and each unit has one verdict."""
    queue(store, ("judged",), 30)
    gate = threading.Event()
    judge = Replies(1, gate=gate)
    with working(store, Judged(judge), at_once=2) as worker:
        while judge.at_once < 2:
            gate.wait(0.001)
        stop = threading.Thread(target=worker.stop)
        stop.start()
        eventually(lambda: worker.stopping)
        gate.set()
        stop.join()
    assert 2 <= len(scores(store)) < 30
    with working(store, Judged(judge)) as worker:
        assert worker.wait_idle(90)
    assert len({row[0] for row in scores(store)}) == len(scores(store)) == 30


def test_a_judge_that_never_answers_holds_up_no_stop(
    store: EmbeddedStore, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """Its job is scored by the next worker; the call given up is booked at the price of the next: it may be billed."""
    queue(store, ("judged",), 1)
    answers = threading.Event()
    model = loopback_model(lambda _: str(int(answers.wait(60))))
    judged = Judged(HTTPJudge(model.url, "judge"))
    with working(store, judged, caps=Caps(usd_per_day=1.0)) as worker:
        eventually(lambda: model.asked)
        worker.stop(timeout_s=0.05)
    assert scores(store) == []
    answers.set()
    with working(store, judged, caps=Caps(usd_per_day=1.0)) as worker:
        assert worker.wait_idle(90)
    assert [row[2] for row in scores(store)] == ["ok"]
    assert len(model.asked) == 2
    assert Ledger(store, Caps()).spent(T0) == pytest.approx(0.01 + 120 * 1e-5)


def test_docker_does_not_kill_a_collector_whose_judge_hangs(
    tmp_path: Path, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """SIGTERM ends it in seconds; the judge would answer after ten minutes. What it was about stays pending."""
    answers = threading.Event()
    model = loopback_model(lambda _: str(answers.wait(600)))
    config = tmp_path / "ragpulse.toml"
    config.write_text(
        f'[collector]\nsettle_s = 0\n[judge]\nmodel = "{model.url}#judge"\n'
        '[[rule]]\nname = "all"\nevaluators = ["faithfulness"]\nrate = 1\n'
    )
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        send(process.url, rag_trace(1))
        eventually(lambda: model.asked)
        assert process.terminate() == 0
    answers.set()
    with closing(EmbeddedStore(tmp_path / "ragpulse.duckdb", decode=decode)) as store:
        assert len(pending(store, limit=10).jobs) == 1


def test_a_backlog_is_worked_off_from_both_ends(store: EmbeddedStore) -> None:
    """Of 120 jobs the first look takes old and new ones alternately: a fall shows before the backlog is gone."""
    units = Units(store)
    made = [T0 + timedelta(minutes=number) for number in range(120)]
    for number, at in enumerate(made):
        units.unit(number)
        units.job(number, "said", at=at)
    units.save()
    seen, since = list[Job](), LONG_AGO
    while (found := pending(store, limit=10, since=since, claimed=[job.job_id for job in seen])).jobs:
        seen, since = seen + found.jobs, found.since
    times = [job.created_at for job in seen]
    assert times[:10] == [at for pair in zip(made, made[:-6:-1], strict=False) for at in pair]
    assert sorted(times) == made


def test_the_jobs_of_services_take_turns(store: EmbeddedStore) -> None:
    """A flood of one service delays no other, whichever came first."""
    units = Units(store)
    for number in range(40):
        units.unit(number, service="quiet" if number in (7, 30) else "flood")
        units.job(number, "said")
    units.save()
    first = [job.unit.trace_id for job in pending(store, limit=10).jobs]
    assert {trace_id(7), trace_id(30)} <= set(first[:8])


@pytest.mark.parametrize("limit", [1, 1000])
def test_the_line_is_read_from_its_head(store: EmbeddedStore, limit: int) -> None:
    """The oldest jobs come first however they are spread, and nothing before the next look's start is forgotten."""
    units = Units(store)
    for number, minute in enumerate((0, 0, 1, 1, 1, 30, 600)):
        units.unit(number)
        units.job(number, "said", at=T0 + timedelta(minutes=minute))
    units.save()
    seen, since = list[str](), LONG_AGO
    while (found := pending(store, limit=limit, since=since, claimed=seen, skew=timedelta(0))).jobs:
        seen += [job.job_id for job in found.jobs]
        since = found.since
    times = dict(store.read("SELECT replace(job_id::VARCHAR, '-', ''), created_at FROM raw.eval_jobs").rows)
    assert [times[job] for job in seen] == sorted(times.values())
    assert since <= T0


def test_a_clock_that_was_ahead_hides_no_jobs(store: EmbeddedStore) -> None:
    """Jobs made after the clock was set back are found by the worker that ran before."""
    units = Units(store)
    units.unit(0, response="yes")
    units.job(0, "said", at=T0 + timedelta(days=365))
    units.save()
    now = [T0 + timedelta(days=365)]
    with working(store, said, clock=lambda: now[0]) as worker:
        assert worker.wait_idle(90)
        now[0] = T0
        units.unit(1, response="yes")
        units.job(1, "said")
        units.save()
        assert worker.wait_idle(90)
    assert len(scores(store)) == 2
