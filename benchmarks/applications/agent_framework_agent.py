"""Microsoft's Agent Framework: an agent's run with a tool, its stream, and a reply of its chat client."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from agent_framework import Message
from agent_framework.openai import OpenAIChatClient

import ragpulse

GROUP = "agent_framework"
REQUIREMENTS = ["agent-framework-core", "agent-framework-openai"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 240, "output_tokens": 10},
    "stream": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "call": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
}


def population(city: str) -> str:
    """Return a city's population."""
    return "two million"


def client() -> OpenAIChatClient:
    return OpenAIChatClient(model="gpt-5-mini", api_key="none", base_url=os.environ["OPENAI_BASE_URL"])


@ragpulse.agent
async def run(question: str) -> Any:
    return await client().as_agent(name="guide", instructions="You answer briefly.", tools=[population]).run(question)


@ragpulse.agent
async def stream(question: str) -> AsyncIterator[Any]:
    async for update in client().as_agent(name="guide", instructions="You answer briefly.").run(question, stream=True):
        yield update


@ragpulse.llm
async def call(question: str) -> Any:
    return await client().get_response([Message("user", [question])])


async def main() -> None:
    await run("Where is Paris?")
    async for _ in stream("Where is Paris?"):
        pass
    await call("Where is Paris?")


if __name__ == "__main__":
    ragpulse.configure()
    asyncio.run(main())
    ragpulse.flush()
