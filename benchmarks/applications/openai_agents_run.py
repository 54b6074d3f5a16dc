"""openai-agents: a run's final output and its usage, whole and streamed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled

import ragpulse

GROUP = "agents"
REQUIREMENTS = ["openai-agents"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 240, "output_tokens": 10},
    "answer": {"kind": "rag", "response": "Paris is the capital of France."},
    "stream": {"response": "Paris is the capital of France."},
    "weather": {"kind": "tool", "parent": "run"},
}


@function_tool
@ragpulse.tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


AGENT = Agent(name="guide", model="gpt-5-mini", tools=[weather])
PLAIN = Agent(name="plain", model="gpt-5-mini")


@ragpulse.agent
async def run(question: str) -> Any:
    return await Runner.run(AGENT, question)


@ragpulse.rag
async def answer(question: str) -> Any:
    return await run(question)


@ragpulse.rag
async def stream(question: str) -> AsyncIterator[Any]:
    async for event in Runner.run_streamed(PLAIN, question).stream_events():
        yield event


async def main() -> None:
    await answer("Where is Paris?")
    async for _ in stream("Where is Paris?"):
        pass


if __name__ == "__main__":
    ragpulse.configure()
    set_tracing_disabled(True)
    asyncio.run(main())
    ragpulse.flush()
