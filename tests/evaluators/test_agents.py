"""Runs of agents and conversations by rules: each row is a run and what a person would say of it."""

import json
from typing import Any

import pytest

from ragpulse_evaluators import Case, ScriptedJudge, evaluator, get_evaluator

SEARCH = {"name": "search", "arguments": {"q": "shoes", "limit": 5}, "result": "[]"}
AGAIN = {"name": "search", "arguments": '{"limit": 5, "q": "shoes"}', "result": "[]"}
OTHER = {"name": "search", "arguments": {"q": "boots"}, "result": "[]"}
BOOK = {"name": "book", "arguments": {"id": 7}, "result": "done"}
MODEL = {"kind": "llm", "name": "gpt-5"}
DEEPEVAL = [{"name": "search", "input_parameters": {"limit": 5}}, {"name": "book"}]


@pytest.mark.parametrize(
    ("name", "params", "trace", "score", "passing", "said"),
    [
        ("tool_called", {"tools": ["search"]}, [SEARCH], 1.0, True, None),
        ("tool_called", {"tools": ["search", "book"]}, [SEARCH], 0.5, False, "not called: book"),
        ("tool_called", {"tools": ["search"], "never": ["book"]}, [SEARCH, BOOK], 0.0, False, "called: book"),
        ("tool_called", {"never": ["book"]}, [SEARCH], 1.0, True, None),
        ("tool_called", {"tools": ["gpt-5"]}, [MODEL], 0.0, False, "not called: gpt-5"),
        ("tool_order", {"tools": ["search", "book"]}, [SEARCH, MODEL, OTHER, BOOK], 1.0, True, None),
        ("tool_order", {"tools": ["book", "search"]}, [SEARCH, BOOK], 0.5, False, "called: search, book"),
        ("tool_order", {"tools": ["search"], "exact": True}, [SEARCH, BOOK], 0.5, False, "called: search, book"),
        ("tool_order", {"tools": ["search"]}, [MODEL], 0.0, False, "called: nothing"),
        ("tool_arguments", {"tool": "search", "arguments": {"limit": 5}}, [OTHER, SEARCH], 1.0, True, None),
        ("tool_arguments", {"tool": "search", "arguments": {"limit": 5, "q": "x"}}, [SEARCH], 0.5, False,
         'search: q is "shoes", not "x"'),
        ("tool_arguments", {"tool": "search", "arguments": {"limit": True}}, [SEARCH], 0.0, False,
         "search: limit is 5, not true"),
        ("tool_arguments", {"tool": "book", "arguments": {"id": 7}}, [SEARCH], 0.0, False, "book was not called"),
        ("tool_arguments", {"tool": "book", "arguments": {"id": 7}}, [BOOK | {"arguments": "no JSON"}], 0.0, False,
         "book: id is missing"),
        ("tool_errors", {}, [SEARCH, BOOK], 0.0, True, None),
        ("tool_errors", {}, [SEARCH, BOOK | {"error": "timeout"}], 0.5, False, "book: timeout"),
        ("repeated_calls", {}, [SEARCH, OTHER, BOOK], 0.0, True, None),
        ("repeated_calls", {}, [SEARCH, BOOK, AGAIN], 1 / 3, False, 'search {"limit": 5, "q": "shoes"}'),
        ("steps", {"threshold": 2}, [MODEL, SEARCH, {"kind": "agent", "name": "helper"}], 2.0, True, None),
        ("steps", {"threshold": 2}, [MODEL, SEARCH, MODEL], 3.0, False, None),
        ("steps", {}, [MODEL], 1.0, None, None),
    ],
)  # fmt: skip
def test_a_run(
    name: str, params: dict[str, Any], trace: list[Any], score: float, passing: bool | None, said: str | None
) -> None:
    """The score, the verdict and the first thing that is wrong."""
    result = get_evaluator(name, **params).at_once(Case(trace=trace))
    assert (result.status, result.score, result.passing) == ("ok", pytest.approx(score), passing)
    assert result.explanation == said


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("Error: not enough seats", True),
        ("ToolError: no such file", True),
        ("ValueError: x", True),
        ("No error occurred.", False),
        ('{"error": "boom"}', True),
        ('{"isError": true, "content": []}', True),
        ('{"error": null, "rows": 3}', False),
        ('{"errors": []}', False),
        ("No errors were found in the log.", False),
        ("Traceback (most recent call last):", True),
        ("[1, 2]", False),
        ("[" * 5000, False),
        ("", False),
        (None, False),
    ],
)
def test_a_result_that_is_an_error(result: str | None, failed: bool) -> None:
    """The usual forms of an error in a tool's result, and what only looks like one."""
    found = get_evaluator("tool_errors").at_once(Case(trace=[{"name": "t", "result": result}]))
    assert found.score == float(failed)


@pytest.mark.parametrize("name", ["tool_called", "tool_order", "tool_arguments"])
def test_expected_tools_of_a_data_set(name: str) -> None:
    """A row as DeepEval writes it says what is expected; without expectations a case is skipped."""
    row = {"input": "q", "tools_called": DEEPEVAL, "expected_tools": DEEPEVAL}
    result = get_evaluator(name).at_once(Case.model_validate(row))
    assert (result.status, result.passing) == ("ok", True)
    bare = get_evaluator(name).at_once(Case(trace=DEEPEVAL))
    assert (bare.status, bare.explanation) == ("skipped", "missing: metadata.expected_tools")
    alone = get_evaluator(name).at_once(Case(query="q"))
    assert (alone.status, alone.explanation) == ("skipped", "missing: trace")


def test_a_run_is_read_from_chat_messages() -> None:
    """Calls with their results by id; an answer of the model is a step."""
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "an answer"},
    ]
    steps = Case(trace=messages).trace or ()
    assert [(step.kind, step.name, step.arguments, step.result) for step in steps] == [
        ("llm", None, None, None), ("tool", "search", {"q": "x"}, "found"), ("llm", None, None, "an answer"),
    ]  # fmt: skip
    assert Case(trace=steps).trace == steps


def test_hostile_runs_cost_little() -> None:
    """A hundred thousand steps, names with control characters, arguments nested too deep: text, and quick."""
    deep = "[" * 100_000
    trace = [{"name": "a\x00\ud800\n", "arguments": deep}, *({"name": "t", "arguments": n % 7} for n in range(100_000))]
    case = Case(trace=trace)
    assert get_evaluator("repeated_calls").at_once(case).score == pytest.approx((100_000 - 7) / 100_001)
    assert get_evaluator("tool_called", tools=["t"]).at_once(case).passing
    assert get_evaluator("tool_order", tools=["t", "x"]).at_once(case).score == 0.5
    result = get_evaluator("tool_errors").at_once(Case(trace=[trace[0] | {"error": "x" * 10_000}]))
    json.dumps(result.model_dump(mode="json"))
    assert len(result.explanation or "") < 300


@pytest.mark.parametrize(
    ("turns", "again", "left", "why"),
    [
        ([("How do I return shoes?", "Print a label."), ("Thanks", "You are welcome.")], 0.0, 0.0, None),
        ([("How do I return shoes?", "We sell shoes."), ("How do I return my shoes?", "We sell shoes.")], 1.0, 1.0,
         "the last question was asked before"),
        ([("怎样退鞋?", "我们卖鞋。"), ("怎样退鞋?", "我们卖鞋。")], 1.0, 1.0, "the last question was asked before"),
        ([("Where is it?", "Here."), ("And the other one?", "")], 0.0, 1.0, "the last question has no answer"),
        ([("Where is it?", "Here."), ("And the other one?", None)], 0.0, 1.0, "the last question has no answer"),
        ([("Where is it?", "Here."), ("Who made it?", "I'm sorry, I cannot answer that.")], 0.0, 1.0,
         "the last answer declines"),
    ],
)  # fmt: skip
def test_a_conversation(turns: list[Any], again: float, left: float, why: str | None) -> None:
    """What a person sees at once: the same question again, an end without help."""
    case = Case(history=turns[:-1], query=turns[-1][0], response=turns[-1][1])
    assert get_evaluator("asked_again").at_once(case).score == again
    result = get_evaluator("abandoned").at_once(case)
    assert (result.score, result.explanation) == (left, why)
    assert get_evaluator("turns", threshold=1).at_once(case).passing is False


def test_answers_that_are_not_recorded_abandon_nobody() -> None:
    """Unknown is no verdict."""
    case = Case(history=[("a", None)], query="b")
    assert get_evaluator("abandoned").at_once(case).status == "skipped"
    assert get_evaluator("asked_again").at_once(Case(query="b")).status == "skipped"


@pytest.mark.parametrize(("name", "normalized"), [("goal_completion", 0.75), ("frustration", 0.25)])
@pytest.mark.parametrize("language", ["en", "pt", "zh"])
async def test_a_judge_marks_a_whole_conversation(name: str, normalized: float, language: str) -> None:
    """One call with every turn; frustration is better where it is low."""
    judge = ScriptedJudge(['{"reason": "why", "score": 4}'])
    case = Case(history=[("thing 1", "said 1")], query="thing 2", response="said 2")
    result = await get_evaluator(name, judge=judge, language=language)(case)
    assert (result.score, result.normalized, result.explanation) == (4.0, normalized, "why")
    prompt = result.calls[0].prompt
    places = [prompt.index(text) for text in ("thing 1", "said 1", "thing 2", "said 2")]
    assert places == sorted(places)


def test_a_function_of_a_user_sees_the_steps() -> None:
    """`trace` is the facts of the run, with its steps; `case.trace` are the steps."""

    def quick(trace: dict[str, Any], case: Case) -> bool:
        return trace["latency_s"] == 1.5 and trace["steps"] == case.trace and len(trace["steps"]) == 1

    assert evaluator(quick).at_once(Case(latency_s=1.5, trace=[SEARCH])).score == 1.0
