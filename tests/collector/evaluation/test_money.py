"""Caps hold and bills are right, whatever a judge on a paid address writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from asking import replay_of
from loopback import Answer, LoopbackModel
from served import Served
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.client import connect
from ragpulse_collector.conventions import decode
from ragpulse_collector.evaluation import AttemptOptions, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger, Reservation
from ragpulse_collector.evaluation.judge import JudgePrices, PricedJudge, RecordedCalls
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.settings import Price, Settings
from ragpulse_collector.store import Prices
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators import JudgeCall
from ragpulse_evaluators.judges.protocol import ScriptedJudge
from ragpulse_evaluators.judges.replies import read_usage
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge
from ragpulse_evaluators.runner import Retry

PRICE = Price(input=0.25, output=2.0)
VERDICT = '{"reason": "fine", "score": 1.0}'
NOW = T0 + timedelta(hours=1)


def usd(tokens: list[tuple[int, int]]) -> float:
    """What the provider bills."""
    return sum(read * 0.25e-6 + written * 2e-6 for read, written in tokens)


def every_second(odd: Any) -> Answer:
    """A judge whose every second reply is `odd`."""
    numbers = count()
    return lambda _: odd if next(numbers) % 2 else VERDICT


KINDS: dict[str, Callable[[], Answer]] = {
    "long replies": lambda: lambda _: VERDICT,
    "flapping": lambda: every_second(None),
    "refusing": lambda: every_second(429),
    "no verdict": lambda: lambda _: "I would rather talk about the weather.",
    "no completion": lambda: lambda _: b"<html>gateway</html>",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with 40 decided units, each with a job for `helpfulness`."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number in range(40):
        units.unit(number, query=f"What is {number}?", response=f"It is {number}.")
        units.decision(number, "helpfulness")
        units.job(number, "helpfulness")
    units.save()
    yield opened
    opened.close()


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Iterator[LoopbackModel]:
    """A judge that writes 2,500 tokens to every question."""
    model = LoopbackModel(KINDS[getattr(request, "param", "long replies")](), writes=2_500)
    yield model
    model.close()


each_kind = pytest.mark.parametrize("judge", KINDS, indirect=True)


@contextmanager
def working(
    store: EmbeddedStore, model: LoopbackModel, *, cap: float | None = None, max_tokens: int | None = None
) -> Iterator[tuple[Worker, Replays]]:
    """A worker and replays as the collector wires them; the judge has a price and no loopback address."""
    settings = Settings(prices={"paid": PRICE}).with_options(
        "judge", {"model": f"{model.url_at('127.1')}#paid", "max_tokens": max_tokens}
    )
    calls, gate = RecordedCalls(store), Gate(4)
    price = JudgePrices(settings, Prices(settings.prices))
    priced = partial(PricedJudge, prices=price)
    catalog = Catalog(settings, priced=priced, wrap=lambda one: CachedJudge(GatedJudge(one, gate), calls))
    ledger, options = Ledger(store, Caps(usd_per_day=cap), price=price), AttemptOptions(retry=Retry(first_s=0.001))
    worker = Worker(store, catalog.resolve, ledger, gate=gate, options=options, clock=lambda: T0)
    worker.start()
    try:
        yield worker, Replays(store, catalog.resolve, price=price, wake=worker.wake, clock=lambda: NOW)
    finally:
        worker.stop()


@each_kind
@pytest.mark.parametrize(("cap", "max_tokens"), [(0.02, 2_500), (0.06, None)])
def test_the_days_cap_is_hard(store: EmbeddedStore, judge: LoopbackModel, cap: float, max_tokens: int | None) -> None:
    """A cap of $0.02 spent $0.222: replies are reserved at their limit, and what may be billed is booked."""
    with working(store, judge, cap=cap, max_tokens=max_tokens) as (worker, _):
        assert worker.wait_idle(90)
    spent = Ledger(store, Caps()).spent(T0)
    assert 0.0 < usd(judge.billed) <= spent + 1e-9 <= cap
    assert worker.counts["dropped"] > 0


@each_kind
def test_the_cap_of_a_replay_is_hard(store: EmbeddedStore, judge: LoopbackModel) -> None:
    """A cap of $0.10 spent $0.484."""
    store.write(lambda tx: tx.execute("DELETE FROM raw.eval_jobs")).result()
    with working(store, judge) as (worker, replays):
        run = replays.start(replay_of("helpfulness", max_usd=0.10, clock=NOW)).replays[0]
        assert worker.wait_idle(90)
        state = replays.get(run.run_id)
    assert 0.05 < usd(judge.billed) <= 0.10
    assert state.status == "capped"


def test_the_paid_evaluators_of_a_replay_share_its_cap(store: EmbeddedStore, judge: LoopbackModel) -> None:
    """What needs no judge leaves its part to them: one of three may spend all."""
    caps = {}
    with working(store, judge) as (_, replays):
        for names in (
            ("helpfulness", "citation_check", "refusal"),
            ("helpfulness", "conciseness", "refusal"),
            ("refusal",),
        ):
            found = replays.start(replay_of(*names, max_usd=0.2, limit=1, clock=NOW)).replays
            caps[names] = {run.evaluator: run.max_usd for run in found}
    assert [found.get("helpfulness", found["refusal"]) for found in caps.values()] == [0.2, 0.1, 0.2]


def test_the_bill_holds_the_truth_and_learns_it(store: EmbeddedStore, judge: LoopbackModel) -> None:
    """A bill said $0.179 for about $2.00: the most bounds it, and recorded replies make the likely cost right."""
    store.write(lambda tx: tx.execute("DELETE FROM raw.eval_jobs")).result()
    asked = partial(replay_of, "helpfulness", clock=NOW)
    with working(store, judge) as (worker, replays):
        before = replays.bill(asked())
        replays.start(asked(limit=10))
        assert worker.wait_idle(90)
        after = replays.bill(asked())
        billed = len(judge.billed)
        assert replays.bill(asked(max_usd=0.05)).cost_usd_at_most == 0.05
        replays.start(asked())
        assert worker.wait_idle(90)
    truth = usd(judge.billed)
    assert before.cost_usd_low < before.cost_usd < truth < before.cost_usd_at_most
    assert after.cost_usd == pytest.approx(usd(judge.billed[billed:]), rel=0.05)
    assert after.cost_usd_low <= after.cost_usd < after.cost_usd_at_most


def test_the_users_price_settles_every_judge(store: EmbeddedStore, judge: LoopbackModel) -> None:
    """Calls over HTTP, which report no cost, are priced by `[prices]`; no score stays without a cost."""
    with working(store, judge, cap=5.0) as (worker, _):
        assert worker.wait_idle(90)
    assert store.read("SELECT count(*), count(cost_usd), sum(cost_usd) FROM scores").rows == [
        (40, 40, pytest.approx(usd(judge.billed)))
    ]
    assert Ledger(store, Caps()).spent(T0) == pytest.approx(usd(judge.billed))


@pytest.mark.parametrize(
    ("model", "usage", "reported", "cost"),
    [
        ("openai/paid", (1000, 100), 0.5, 0.00045),
        ("paid", (1000, 100), None, 0.00045),
        ("openai/other", (1000, 100), 0.5, 0.5),
        ("openai/other", (1000, 100), None, None),
        ("openai/paid", (None, None), 0.5, 0.5),
        ("openai/paid", (None, None), None, None),
        ("at-home", (1000, 100), None, 0.0),
        ("at-home", (None, None), None, 0.0),
    ],
)
def test_whose_price_settles_a_call(
    model: str, usage: tuple[int | None, int | None], reported: float | None, cost: float | None
) -> None:
    """The user's price wins over the library's figure; a judge on loopback is free; unknown stays unknown."""
    settings = Settings(prices={"paid": PRICE}).with_options("judge", {"model": "http://127.0.0.1:1/v1#at-home"})
    reply = {"completion": "1", "cost_usd": reported, "input_tokens": usage[0], "output_tokens": usage[1]}
    priced = PricedJudge(ScriptedJudge([reply], id=model), JudgePrices(settings, Prices(settings.prices)))
    (call,) = asyncio.run(priced.ask([{"role": "user", "content": "?"}]))
    assert call.cost_usd == (None if cost is None else pytest.approx(cost))


OPENAI = {"prompt_tokens": 2_000, "prompt_tokens_details": {"cached_tokens": 1_000}, "completion_tokens": 500}
ANTHROPIC = {
    "input_tokens": 1_000, "cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 1_000, "output_tokens": 100,
}  # fmt: skip
R1 = "deepseek-ai/DeepSeek-R1-0528"
REPLIES: list[tuple[str, dict[str, Any], float | None]] = [
    ("https://api.openai.com/v1#gpt-5-mini", {"usage": OPENAI}, 0.001275),
    ("https://api.openai.com/v1#gpt-5-mini", {"usage": OPENAI, "service_tier": "flex"}, 0.0006375),
    ("https://llm.example.org/v1#gpt-5-mini", {"usage": OPENAI}, 0.001275),
    ("openai/gpt-5-mini", {"usage": OPENAI}, 0.001275),
    ("https://api.anthropic.com/v1#claude-sonnet-4-5", {"usage": ANTHROPIC}, 0.00855),
    ("anthropic/claude-sonnet-4-5", {"usage": ANTHROPIC | {"service_tier": "batch"}}, 0.004275),
    (
        "anthropic/claude-sonnet-4-5",
        {"usage": {**ANTHROPIC, "prompt_tokens": 3_000, "completion_tokens": 100}},
        0.00855,
    ),
    (f"https://api.together.xyz/v1#{R1}", {"usage": OPENAI}, None),
    (f"together_ai/{R1}", {"usage": OPENAI}, None),
    (f"https://llm.example.org/v1#{R1}", {"usage": OPENAI}, None),
]
"""A judge, the usage of a reply, and its cost."""


@pytest.mark.parametrize(("judge", "answer", "cost"), REPLIES)
def test_a_judges_cache_and_tier_are_priced_and_no_other_sellers_price_is(
    judge: str, answer: dict[str, Any], cost: float | None
) -> None:
    """By the names of OpenAI and Anthropic; where the seller has no price, the cost is unknown."""
    price = JudgePrices(Settings().with_options("judge", {"model": judge}), Prices())
    call = JudgeCall(completion="1", **read_usage(answer, "?", ["1"]))
    assert price.cost_of_call(call, judge.rpartition("#")[2]) == (None if cost is None else pytest.approx(cost))


def test_a_judges_configured_tier_is_reserved() -> None:
    """Before the reply says which tier it was."""
    settings = Settings().with_options("judge", {"model": "openai/gpt-5-mini", "service_tier": "priority"})
    assert JudgePrices(settings, Prices())("openai/gpt-5-mini", 1_000_000, 0) == pytest.approx(0.45)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_killed_process_leaves_nothing_reserved(store: EmbeddedStore, judge: LoopbackModel, recorded: bool) -> None:
    """Once its job is settled again, what the killed call may have cost is booked instead of its reservation."""
    if recorded:  # the reply was on disk when the process was killed: the second attempt asks nothing
        with working(store, judge) as (worker, _):
            assert worker.wait_idle(90)
        store.write(lambda tx: tx.execute("DELETE FROM raw.scores")).result()
    (job_id,) = store.read("SELECT job_id FROM raw.eval_jobs ORDER BY u LIMIT 1").rows[0]
    killed = Reservation(evaluator="helpfulness", usd=1.0, job_id=job_id.hex, day=T0)
    store.write(lambda tx: Ledger(store, Caps(usd_per_day=9.0)).reserve(tx, [killed])).result()
    with working(store, judge, cap=9.0) as (worker, _):
        assert worker.wait_idle(90)
    left = store.read("SELECT sum(usd) FROM raw.ledger WHERE kind <> 'spend'").rows[0][0]
    assert left == pytest.approx(0.0)
    one_call = usd(judge.billed[:1])
    assert Ledger(store, Caps()).spent(T0) == pytest.approx(one_call if recorded else 41 * one_call)


@pytest.mark.parametrize(("kills", "lost"), [(0, False), (1, False), (4, False), (4, True)])
def test_a_killed_replay_uses_its_reservations_again(
    store: EmbeddedStore, judge: LoopbackModel, kills: int, *, lost: bool
) -> None:
    """Four kills ate the cap: what the killed calls reserved, 16 of 18 times its cost, was held to the end."""
    store.write(lambda tx: tx.execute("DELETE FROM raw.eval_jobs")).result()
    cap, judge.writes, run_id = 0.30, 500, ""
    for kill in range(kills + 1):
        answers = threading.Event()
        replies = iter([None if lost else VERDICT, *[VERDICT] * 4])  # then every call hangs until the kill
        if kill < kills:
            judge.answer = lambda _, replies=replies, answers=answers: next(replies, "") or answers.wait(60) or None
        else:
            judge.answer = lambda _: VERDICT
        asked = len(judge.asked)
        with working(store, judge) as (worker, replays):
            run_id = run_id or replays.start(replay_of("helpfulness", max_usd=cap, clock=NOW)).replays[0].run_id
            if kill < kills:
                eventually(lambda: len(judge.asked) >= asked + 7 or replays.get(run_id).status == "capped")  # noqa: B023
                worker.stop(0.0)
                answers.set()
                continue
            assert worker.wait_idle(90)
            state = replays.get(run_id)
    spent = store.read("SELECT sum(usd), sum(usd) FILTER (WHERE kind <> 'spend') FROM raw.ledger").rows[0]
    assert (state.status, state.done) == ("done", 40)
    assert usd(judge.billed) <= spent[0] + 1e-9 <= cap
    assert spent[1] == pytest.approx(0.0)


def test_kill_9_during_a_call_leaves_the_bill_right(tmp_path: Path) -> None:
    """Through `ragpulse serve`: the ledger holds both calls, as the provider does, and no reservation."""
    answers = threading.Event()
    model = LoopbackModel(lambda _: VERDICT if answers.wait(60) else None, writes=2_500)
    config = tmp_path / "ragpulse.toml"
    config.write_text(
        f'[collector]\nsettle_s = 0\n[judge]\nmodel = "{model.url_at("127.1")}#paid"\n'
        "[prices.paid]\ninput = 0.25\noutput = 2.0\n"
        '[[rule]]\nname = "all"\nevaluators = ["helpfulness"]\nrate = 1\n'
    )
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        send(process.url, rag_trace(1))
        eventually(lambda: model.asked)
        process.kill()
    answers.set()
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        until(connect(process.url), "select 1 from scores where cost_usd is not null", 1)
        process.terminate()
    with closing(EmbeddedStore(tmp_path / "ragpulse.duckdb", decode=decode)) as store:
        rows = store.read("SELECT kind = 'spend', sum(usd) FROM raw.ledger GROUP BY 1 ORDER BY 1").rows
    assert rows == [(False, pytest.approx(0.0)), (True, pytest.approx(usd(model.billed)))]
    assert len(model.billed) == 2
    model.close()
