"""AG2: an agent's turn with a tool, and the next turn of the same conversation, which states its own calls alone."""

import asyncio
import os
from typing import Any

from ag2 import Agent
from ag2.config import OpenAIConfig

import ragpulse

GROUP = "ag2"
REQUIREMENTS = ["ag2[openai]"]
EXPECTED = {
    "first": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 240, "output_tokens": 10},
    "second": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "trace": {"query": "Where is Paris?"},
}


def population(city: str) -> str:
    """Return a city's population."""
    return "two million"


@ragpulse.agent(query="question")
async def first(agent: Agent, question: str) -> Any:
    return await agent.ask(question)


@ragpulse.agent(query="question")
async def second(earlier: Any, question: str) -> Any:
    return await earlier.ask(question)


async def main() -> None:
    config = OpenAIConfig(model="gpt-5-mini", api_key="none", base_url=os.environ["OPENAI_BASE_URL"])
    reply = await first(Agent("guide", "You answer briefly.", config=config, tools=[population]), "Where is Paris?")
    await second(reply, "And how large is it?")


if __name__ == "__main__":
    ragpulse.configure()
    asyncio.run(main())
    ragpulse.flush()
