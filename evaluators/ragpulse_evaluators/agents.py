"""Runs of agents and conversations by rules, without a judge: were the right tools called, did they fail, is it over?

The rules read the steps of a run (`Case.trace`) and the turns of a conversation (`Case.turns`) and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_evaluators.case import Case, Step
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.grounding.refusal import find_refusal
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.structure import difference
from ragpulse_evaluators.text.matching import words

_SHARE, _COUNT = Scale(reverse=True), Scale(hi=None, reverse=True)
_FAILED = re.compile(r"\W*(?:\w*error|\w*exception|traceback|failed|failure)\b", re.IGNORECASE)
"""How a text begins that says so."""
_FAILED_KEYS = ("error", "errors", "exception", "isError", "is_error")
"""Keys of a tool's result that say that it failed: MCP's `isError`, and the usual ones."""
_AGAIN = 0.7
"""The share of common words from which on a question asks an earlier one again."""


# --- tools ------------------------------------------------------------------------------------------------------------
def _tools(case: Case) -> list[Step]:
    """The calls of tools in a run, in the order of their start."""
    return [step for step in case.trace or () if step.kind == "tool"]


def _failed(step: Step) -> bool:
    """Whether a call failed: its span says so, or its result is an error in the usual forms."""
    if step.error is not None:
        return True
    result = step.result or ""
    try:
        value = json.loads(result) if result[:1] in "{[" and result else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return any(value.get(key) not in (None, False, "", [], {}) for key in _FAILED_KEYS)
    return value is None and _FAILED.match(result[:60]) is not None


def _expected(case: Case, tools: Sequence[str] | None) -> list[str]:
    """The tools that are asked for, else those of the case (`metadata.expected_tools`)."""
    wanted = case.metadata.get("expected_tools") if tools is None else tools
    if not isinstance(wanted, list | tuple) or not wanted:
        raise MissingField("metadata.expected_tools")
    return [str(tool.get("name") if isinstance(tool, Mapping) else tool) for tool in wanted]


def tool_called(case: Case, *, tools: Sequence[str] | None = None, never: Sequence[str] = ()) -> Outcome:
    """The share of the expected tools that were called; passing where all were, and none of `never`."""
    expected = [] if tools is None and never else list(dict.fromkeys(_expected(case, tools)))
    called = {step.name for step in _tools(case)}
    missing = [tool for tool in expected if tool not in called]
    unwanted = [tool for tool in never if tool in called]
    said = [f"not called: {', '.join(missing)}"] if missing else []
    said += [f"called: {', '.join(unwanted)}"] if unwanted else []
    score = 0.0 if unwanted else 1.0 - len(missing) / max(1, len(expected))
    return Outcome(score=score, passing=not said, explanation="; ".join(said) or None)


def tool_order(case: Case, *, tools: Sequence[str] | None = None, exact: bool = False) -> Outcome:
    """The longest part of the expected calls that came in this order; `exact` allows no other call between."""
    expected, called = _expected(case, tools), [step.name or "" for step in _tools(case)]
    common = _longest_common(expected, called)
    of = max(len(expected), len(called)) if exact else len(expected)
    passing = common == of
    return Outcome(score=common / of, passing=passing, explanation=None if passing else f"called: {_listed(called)}")


def _longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    row = [0] * (len(second) + 1)
    for item in first:
        before = row
        row = [0]
        for place, other in enumerate(second):
            row.append(before[place] + 1 if item == other else max(row[-1], before[place + 1]))
    return row[-1]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "nothing"


def tool_arguments(case: Case, *, tool: str = "", arguments: Mapping[str, Any] | None = None) -> Outcome:
    """The share of the expected arguments that a call of the tool had, of its best call; other arguments may be there.

    Without `arguments` the expected tools of the case say them (`metadata.expected_tools`, as DeepEval writes them).
    """
    wanted = [(tool, arguments)] if arguments else _expected_arguments(case, tool)
    found = [_best(case, name, expected) for name, expected in wanted]
    kept = sum(share for share, _ in found) / len(found)
    problems = [why for _, why in found if why]
    return Outcome(score=kept, passing=not problems, explanation="; ".join(problems) or None)


def _expected_arguments(case: Case, tool: str) -> list[tuple[str, Mapping[str, Any]]]:
    listed = case.metadata.get("expected_tools")
    steps = [Step.model_validate(one) for one in listed or () if isinstance(one, Mapping)]
    wanted = [
        (step.name or "", step.arguments)
        for step in steps
        if isinstance(step.arguments, Mapping) and step.arguments and tool in ("", step.name)
    ]
    if not wanted:
        raise MissingField("metadata.expected_tools")
    return wanted


def _best(case: Case, tool: str, expected: Mapping[str, Any]) -> tuple[float, str | None]:
    """The best share of a call, and what is wrong with that call."""
    calls = [step for step in _tools(case) if step.name == tool]
    if not calls:
        return 0.0, f"{tool} was not called"
    wrong = min((_differences(step.arguments, expected) for step in calls), key=len)
    return 1.0 - len(wrong) / len(expected), f"{tool}: {wrong[0]}" if wrong else None


def _differences(given: Any, expected: Mapping[str, Any]) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{name} is missing" for name in expected]
    found = (
        difference(given[name], value, name) if name in given else f"{name} is missing"
        for name, value in expected.items()
    )
    return [text for text in found if text is not None]


def tool_errors(case: Case) -> Outcome | None:
    """The share of the calls of tools that failed."""
    calls = _tools(case)
    return _share([f"{step.name}: {(step.error or step.result or '')[:200]}" for step in calls if _failed(step)], calls)


def repeated_calls(case: Case) -> Outcome | None:
    """The share of the calls of tools that repeat an earlier one: the same tool with equal arguments."""
    seen: set[str] = set()
    calls, again = _tools(case), []
    for step in calls:
        key = f"{step.name} {json.dumps(step.arguments, sort_keys=True, default=str)}"
        if key in seen:
            again.append(key[:200])
        seen.add(key)
    return _share(again, calls)


def _share(bad: Sequence[str], of: Sequence[Any]) -> Outcome | None:
    """The share of what is bad; not applicable where there is nothing."""
    if not of:
        return None
    return Outcome(score=len(bad) / len(of), passing=not bad, explanation="\n".join(bad[:5]) or None)


def steps(case: Case) -> int:
    """How many calls of models and tools the run took."""
    return sum(step.kind in ("tool", "llm") for step in case.trace or ())


# --- conversations ----------------------------------------------------------------------------------------------------
def asked_again(case: Case) -> Outcome | None:
    """The share of the user's later turns that ask an earlier question again, in about the same words."""
    asked = [(turn.query or "", frozenset(words(turn.query or ""))) for turn in case.turns]
    again = [
        text for place, (text, said) in enumerate(asked) if any(_is_like(said, before) for _, before in asked[:place])
    ]
    return _share(again, asked[1:])


def _is_like(said: frozenset[str], before: frozenset[str]) -> bool:
    return len(said & before) >= _AGAIN * len(said | before) > 0


def abandoned(case: Case) -> Outcome:
    """Does the conversation end without help: no answer to its last question, a refusal, or the same question again?"""
    *before, last = case.turns
    if all(turn.response is None for turn in case.turns):
        raise MissingField("response")  # the texts of answers may not be recorded at all
    said = frozenset(words(last.query or ""))
    why = (
        "the last question has no answer"
        if not (last.response or "").strip()
        else "the last answer declines"
        if find_refusal(last.response or "")
        else "the last question was asked before"
        if any(_is_like(said, frozenset(words(turn.query or ""))) for turn in before)
        else None
    )
    return Outcome(score=float(why is not None), passing=why is None, explanation=why)


def turns(case: Case) -> int:
    """How many turns the conversation took."""
    return len(case.turns)


def _entry(function: Any, description: str, source: str, *, needs: str, **more: Any) -> Entry:
    return Entry.of_function(function, description=description, source=source, needs=(needs,), **more)


ENTRIES = (
    _entry(
        tool_called, "Were the expected tools called, and none that must not be?", "DeepEval ToolCorrectness",
        needs="trace", options='tools=["search"]',
    ),
    _entry(
        tool_order, "Were the tools called in the expected order?", "DeepEval ToolCorrectness (ordering)",
        needs="trace", options='tools=["search", "answer"]',
    ),
    _entry(
        tool_arguments, "Had a call of the tool the expected arguments?", "DeepEval ToolCorrectness (input parameters)",
        needs="trace", options='tool="search", arguments={"limit": 5}',
    ),
    _entry(tool_errors, "Which share of the calls of tools failed?", "ragpulse", needs="trace", scale=_SHARE),
    _entry(
        repeated_calls, "Which share of the calls of tools repeats an earlier one?", "ragpulse",
        needs="trace", scale=_SHARE,
    ),
    _entry(
        steps, "How many calls of models and tools did the run take?", "pydantic-evals MaxSteps",
        needs="trace", scale=_COUNT, threshold=True, options="threshold=10",
    ),
    _entry(
        asked_again, "Which share of the user's later turns asks an earlier question again?", "ragpulse",
        needs="history", scale=_SHARE,
    ),
    _entry(
        abandoned, "Does the conversation end without help?", "ragpulse", needs="query", scale=_SHARE,
    ),
    _entry(
        turns, "How many turns did the conversation take?", "DeepEval", needs="query",
        scale=_COUNT, threshold=True, options="threshold=6",
    ),
)  # fmt: skip
