"""AutoGen: a task's result, whose messages name their speaker by `source`, and its stream."""

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

import ragpulse

GROUP = "autogen"
REQUIREMENTS = ["autogen-agentchat", "autogen-ext[openai]"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France."},
    "team": {"kind": "agent", "response": "Paris is the capital of France."},
    "stream": {"kind": "agent", "response": "Paris is the capital of France."},
    "call": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
}

INFO: Any = {
    "vision": False, "function_calling": True, "json_output": False, "family": ModelFamily.UNKNOWN,
    "structured_output": False,
}  # fmt: skip
MODEL = OpenAIChatCompletionClient(model="gpt-5-mini", model_info=INFO)


@ragpulse.agent
async def run(question: str) -> Any:
    return await AssistantAgent("clerk", MODEL).run(task=question)


@ragpulse.agent
async def team(question: str) -> Any:
    return await RoundRobinGroupChat([AssistantAgent("clerk", MODEL)], max_turns=1).run(task=question)


@ragpulse.agent
def stream(question: str) -> Any:
    return AssistantAgent("clerk", MODEL).run_stream(task=question)


@ragpulse.llm
async def call(question: str) -> Any:
    return await MODEL.create([UserMessage(content=question, source="user")])


async def main() -> None:
    """Run all of them in one event loop."""
    await run("Where is Paris?")
    await team("Where is Paris?")
    [item async for item in stream("Where is Paris?")]
    await call("Where is Paris?")


if __name__ == "__main__":
    ragpulse.configure()
    asyncio.run(main())
    ragpulse.flush()
