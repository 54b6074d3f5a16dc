"""Batches: order, concurrency, retry, progress, budget, engines, whole responses."""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pandas
import pytest

from ragpulse_evaluators import (
    Case,
    FileCache,
    JudgeCall,
    ScriptedJudge,
    evaluate,
    evaluate_queries,
    evaluate_response,
    evaluate_sync,
    evaluator,
    get_evaluator,
)
from ragpulse_evaluators.errors import BudgetExceeded, ConfigurationError, JudgeError
from ragpulse_evaluators.runner import Attempt, Engine, Retry, Work

AT_ONCE = Retry(first_s=0.0)
CASES = [Case(query=f"q{i}", response=f"r{i}", contexts=[f"c{i}"], reference=f"r{i % 2}") for i in range(6)]


class EchoJudge:
    """Answers YES where the response is even; counts how many are in flight."""

    id = "echo"

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def ask(
        self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """Let others in, then answer."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        prompt = messages[-1]["content"]
        even = any(f"\nr{i}\n" in prompt for i in (0, 2, 4))
        return [JudgeCall(prompt=prompt, completion="YES" if even else "NO", cost_usd=0.01)] * n


async def test_results_come_by_name_in_the_order_of_the_cases() -> None:
    """Two evaluators over six cases; a mapping is a case too."""
    cases: list[Any] = [*CASES[:5], CASES[5].model_dump()]
    found = await evaluate(cases, ["faithfulness", "exact_match"], judge=EchoJudge(), concurrency=3)
    assert list(found) == ["faithfulness", "exact_match"]
    assert [result.score for result in found["faithfulness"]] == [1, 0, 1, 0, 1, 0]
    assert [result.response for result in found["exact_match"]] == [f"r{i}" for i in range(6)]


@pytest.mark.parametrize("concurrency", [1, 2, 4])
async def test_no_more_than_the_asked_for_cases_are_in_flight(concurrency: int) -> None:
    """The bound holds over all evaluators and is used to the full."""
    judge = EchoJudge()
    await evaluate(CASES, ["faithfulness", "relevancy"], judge=judge, concurrency=concurrency)
    assert judge.most == concurrency


async def test_an_unreachable_judge_is_asked_again_and_a_broken_one_given_up() -> None:
    """Two failures and a YES is ok; four failures stay an error with the message; a bug is not retried."""
    script = ScriptedJudge([JudgeError("down"), JudgeError("down"), "YES"])
    found = await evaluate(CASES[:1], "faithfulness", judge=script, retry=AT_ONCE)
    assert found["faithfulness"][0].score == 1.0
    down = ScriptedJudge([JudgeError("down")] * 4)
    result = (await evaluate(CASES[:1], "faithfulness", judge=down, retry=AT_ONCE))["faithfulness"][0]
    assert (result.status, result.explanation, len(down.asked)) == ("error", "JudgeError: down", 4)
    bug = ScriptedJudge([RuntimeError("bug"), "YES"])
    await evaluate(CASES[:1], "faithfulness", judge=bug, retry=AT_ONCE)
    assert len(bug.asked) == 1


async def test_progress_is_reported_to_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function receives done and total; True prints a bar on a terminal."""
    seen: list[tuple[int, int]] = []
    await evaluate(CASES, ["exact_match"], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]
    await evaluate(CASES, ["exact_match"], progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    await evaluate(CASES, ["exact_match"], progress=True)
    assert capsys.readouterr().err.endswith("] 6/6\n")


async def test_parameters_by_name_and_instances_beside_names() -> None:
    """`params` configures one name; instances and user functions run beside it."""

    @evaluator(version="1")
    def short(response: str) -> bool:
        return len(response) < 3

    strict = get_evaluator("exact_match")
    found = await evaluate(CASES[:1], ["regex", short, strict], params={"regex": {"pattern": "r\\d"}})
    assert {name: results[0].score for name, results in found.items()} == {"regex": 1, "short": 1, "exact_match": 1}


async def test_plain_functions_and_foreign_evaluators_need_no_wrapping() -> None:
    """A function of case fields and an object with `aevaluate` run as they are, under their own names."""

    def shouting(response: str) -> bool:
        return response.isupper()

    class Theirs:
        name = "theirs"

        async def aevaluate(self, **fields: Any) -> Any:
            return SimpleNamespace(score=0.5, passing=None, feedback=None)

    found = await evaluate([Case(response="OK")], [shouting, Theirs()])
    assert {name: results[0].score for name, results in found.items()} == {"shouting": 1.0, "theirs": 0.5}


async def test_mistakes_are_told_before_the_first_question() -> None:
    """Unknown names and a missing judge raise at once."""
    with pytest.raises(ConfigurationError, match="faithfulness needs a judge"):
        await evaluate(CASES, ["exact_match", "faithfulness"])
    with pytest.raises(ConfigurationError, match="no evaluator is called"):
        await evaluate(CASES, ["truth"])
    with pytest.raises(ConfigurationError, match="'regx', which is not asked for; did you mean 'regex'"):
        await evaluate(CASES, ["regex"], params={"regx": {"pattern": "x"}})
    with pytest.raises(ConfigurationError, match="concurrency is at least 1"):
        await evaluate(CASES, "faithfulness", judge=EchoJudge(), concurrency=0)


async def test_a_single_case_needs_no_list() -> None:
    """As a single evaluator needs none."""
    for case in (Case(response="a", reference="a"), {"response": "a", "reference": "a"}):
        found = await evaluate(case, "exact_match")
        assert [result.score for result in found["exact_match"]] == [1.0]


async def test_a_budget_is_never_exceeded() -> None:
    """With 0.035 USD and cents a call, what would exceed it is an error without being asked."""
    prices = (0.0, 0.01 / 4096)
    found = await evaluate(CASES, "faithfulness", judge=EchoJudge(), max_usd=0.035, prices_usd=prices, concurrency=1)
    statuses = [result.status for result in found["faithfulness"]]
    assert statuses == ["ok"] * 3 + ["error"] * 3
    assert "budget of 0.035 USD" in (found["faithfulness"][3].explanation or "")
    with pytest.raises(ConfigurationError, match="no price is known"):
        await evaluate(CASES, "faithfulness", judge=EchoJudge(), max_usd=1)


async def test_a_recorded_run_repeats_without_the_judge(tmp_path: Any) -> None:
    """The second run asks nothing and gives the same results to the byte, but for the mark of the cache."""
    first = await evaluate(CASES, "faithfulness", judge=EchoJudge(), cache=FileCache(tmp_path / "calls.jsonl"))
    silent = ScriptedJudge([], id="echo")
    again = [
        await evaluate(CASES, "faithfulness", judge=silent, cache=FileCache(tmp_path / "calls.jsonl")) for _ in range(2)
    ]
    dumped = [[result.model_dump_json() for result in run["faithfulness"]] for run in again]
    assert dumped[0] == dumped[1]
    assert [r.score for r in first["faithfulness"]] == [r.score for r in again[0]["faithfulness"]]
    assert all(call.cached and call.cost_usd == 0 for r in again[0]["faithfulness"] for call in r.calls)


def test_the_blocking_form_runs_without_a_loop() -> None:
    """Scripts need no event loop of their own; one name need not be a list."""
    assert evaluate_sync(CASES, "exact_match")["exact_match"][1].score == 1.0


async def test_the_blocking_form_works_inside_a_loop_and_reads_frames() -> None:
    """A notebook's loop runs; a frame is read by row, shown as a table, and refused by its column."""
    frame = pandas.DataFrame([{"response": "<b>", "reference": "<b>"}, {"response": "r", "reference": float("nan")}])
    results = evaluate_sync(frame, "exact_match")
    assert [result.status for result in results["exact_match"]] == ["ok", "skipped"]
    assert results._repr_html_().count("<tr>") == 3
    case = Case(response="<b>", contexts=["c"])
    assert "&lt;b&gt;" in case._repr_html_()
    assert "exact_match" in results["exact_match"][0]._repr_html_()
    with pytest.raises(ConfigurationError, match="the data frame: a case has no field 'foo'"):
        evaluate_sync(pandas.DataFrame({"foo": ["a"]}), "exact_match")


async def test_one_answer_of_an_engine_is_scored() -> None:
    """evaluate_response reads the answer's contexts."""
    node = SimpleNamespace(get_content=lambda: "c0", score=1.0)
    answer = SimpleNamespace(response="r0", source_nodes=[node])
    result = await evaluate_response(answer, "faithfulness", query="q", judge=EchoJudge())
    assert (result.score, result.query) == (1.0, "q")


def test_one_answer_is_scored_in_a_script_too() -> None:
    """Without a running loop the result comes at once."""
    assert evaluate_response("r0", "exact_match", query="q", reference="r0").score == 1.0


class QueryEngine:
    """A query engine with an async and a blocking method."""

    def query(self, text: str) -> str:
        """Answer in this thread."""
        return text.replace("q", "r")


class AsyncEngine:
    """A query engine that only awaits."""

    async def aquery(self, text: str) -> Any:
        """Answer later."""
        return SimpleNamespace(response=text.replace("q", "r"), source_nodes=[])


@pytest.mark.parametrize("engine", [QueryEngine(), AsyncEngine(), lambda text: text.replace("q", "r")])
async def test_queries_are_answered_and_scored_in_order(engine: Any) -> None:
    """aquery, query or a callable; references go with their queries."""
    found = await evaluate_queries(engine, ["q1", "q2"], ["exact_match"], references=["r1", "r9"], workers=2)
    assert [result.score for result in found["exact_match"]] == [1.0, 0.0]
    with pytest.raises(ConfigurationError, match="2 queries but 1 references"):
        await evaluate_queries(engine, ["q1", "q2"], ["exact_match"], references=["r1"])


async def test_metrics_over_a_set_give_one_result() -> None:
    """accuracy takes all cases at once."""
    found = await evaluate([Case(response="a", reference="a"), Case(response="b", reference="a")], ["accuracy"])
    assert [result.score for result in found["accuracy"]] == [0.5]


async def test_an_empty_batch_is_empty() -> None:
    """No cases is no error."""
    assert await evaluate([], ["exact_match"]) == {"exact_match": []}


def test_waits_double_up_to_the_longest_and_jitter_only_shortens_them() -> None:
    """One backoff for judges, webhooks and replays; a thousand failures in a row do not overflow it."""
    assert [Retry(first_s=1.0, longest_s=5.0).wait(attempt) for attempt in (0, 1, 2, 3, 1000)] == [1, 2, 4, 5, 5]
    waits = [Retry(first_s=1.0, jitter=0.5).wait(0) for _ in range(100)]
    assert 0.5 <= min(waits) < max(waits) <= 1.0


def _hangs() -> Any:
    @evaluator
    async def hangs(response: str) -> float:
        await asyncio.sleep(1000 if response == "r0" else 0)
        return 1.0

    return hangs


async def test_a_case_that_hangs_is_an_error_and_the_others_go_on() -> None:
    """One of six hangs: it ends at its limit, and nothing waits for it."""
    found = await evaluate(CASES, [_hangs()], timeout_s=1.0, retry=Retry(times=0), concurrency=2)
    first, *others = found["hangs"]
    assert (first.status, first.explanation) == ("error", "no result within 1 s")
    assert [result.score for result in others] == [1.0] * 5


async def test_the_engine_takes_no_more_from_its_source_than_it_has_room_for() -> None:
    """A million cases need no memory: each is made when one before it ended."""
    made, kept = 0, 0

    def works() -> Iterator[Work]:
        nonlocal made
        for case in CASES * 20:
            made += 1
            assert made - kept <= 3 + 1
            yield Work(evaluator=get_evaluator("exact_match"), case=case)

    async def keep(_: Attempt[Work]) -> None:
        nonlocal kept
        await asyncio.sleep(0)
        kept += 1

    await Engine(keep).run(works(), 3)
    assert (made, kept) == (120, 120)


async def test_a_stopped_engine_ends_what_hangs_and_takes_nothing_new() -> None:
    """Two evaluators hang and two are waiting: a stop ends the two, and the others never began."""
    kept: list[Attempt[Work]] = []
    began: list[Work] = []

    async def keep(attempt: Attempt[Work]) -> None:
        kept.append(attempt)

    def works() -> Iterator[Work]:
        for _ in range(4):
            began.append(Work(evaluator=_hangs(), case=CASES[0]))
            yield began[-1]

    engine = Engine(keep, last_s=0.01)
    running = asyncio.create_task(engine.run(works(), 2))
    while len(began) < 2:
        await asyncio.sleep(0)
    engine.stopping.set()
    await asyncio.wait_for(running, 60)
    assert (kept, len(began)) == ([], 2)


async def test_a_lost_call_is_booked_once_and_a_refused_case_is_never_asked() -> None:
    """The judge hangs: its call is lost, and the purse hears so. What the purse refuses reaches nobody."""
    booked: list[tuple[int, Any]] = []
    refused: list[Case | None] = []

    class Hangs(EchoJudge):
        async def ask(self, messages: Sequence[Any], **_: Any) -> list[JudgeCall]:
            await asyncio.sleep(1000)
            raise AssertionError

    class Purse:
        async def take(self, work: Work) -> int:
            if len(booked) == 1:
                raise BudgetExceeded("nothing left")
            return 7

        def release(self, held: int, result: Any) -> None:
            booked.append((held, [call.finish_reason for call in result.calls]))

    async def refuse(work: Work, _: BudgetExceeded) -> None:
        refused.append(work.case)

    async def keep(attempt: Attempt[Work]) -> None:
        assert attempt.is_last

    works = [Work(evaluator=get_evaluator("faithfulness", judge=Hangs()), case=case) for case in CASES[:2]]
    await Engine(keep, timeout_s=0.01, purse=Purse(), refused=refuse).run(works, 1)
    assert (booked, refused) == ([(7, ["lost"])], [CASES[1]])
