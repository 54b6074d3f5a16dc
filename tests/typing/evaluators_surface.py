"""Type-checked, never run: what users of the evaluators write has the types they expect."""

from collections.abc import Sequence
from typing import assert_type

from pydantic import BaseModel

from ragpulse_evaluators import (
    Case,
    Context,
    EvaluationResult,
    Evaluator,
    Function,
    Judge,
    JudgeCall,
    ScriptedJudge,
    evaluate,
    evaluate_sync,
    evaluator,
    get_evaluator,
    list_evaluators,
)
from ragpulse_evaluators.judges.protocol import Message


@evaluator
def bare(response: str) -> bool:
    """A plain function."""
    return bool(response)


@evaluator(version="2", scale=(1, 5))
async def configured(response: str, contexts: tuple[Context, ...], k: int = 3) -> float:
    """A coroutine function with an option."""
    return float(len(response) + len(contexts) + k)


class OwnJudge:
    id = "own"

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        return [JudgeCall(completion=messages[0]["content"])] * n


async def usage() -> None:
    """Every call of the guide."""
    judges: list[Judge] = [OwnJudge(), ScriptedJudge(["YES"])]
    made = get_evaluator("faithfulness", judge=judges[0], language="zh")
    assert_type(made, Evaluator)
    assert_type(bare, Function)
    assert_type(configured, Function)
    assert_type(await made(Case(response="r", contexts=["c"])), EvaluationResult)
    found: dict[str, list[EvaluationResult]] = await evaluate([Case()], ["rouge", bare])
    assert_type(found["rouge"], list[EvaluationResult])
    found = evaluate_sync([{"response": "r"}], "rouge")
    assert_type(list_evaluators(), list[str])
