"""pydantic-ai: an agent's output, text and model, and its usage; each kind of stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent

import ragpulse

GROUP = "agents"
REQUIREMENTS = ["pydantic-ai-slim[openai]"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "extract": {"response": '{"name":"Paris","size":1}', "input_tokens": 120, "model": "gpt-5-mini"},
    "texts": {"response": "Paris is the capital of France.", "ttft_ms": ...},
    "texts_so_far": {"response": "Paris is the capital of France."},
    "events": {"response": "Paris is the capital of France.", "input_tokens": 120, "model": "gpt-5-mini"},
    "synchronous": {"response": "Paris is the capital of France.", "input_tokens": 120},
}


class City(BaseModel):
    name: str
    size: int


@ragpulse.agent
def run(question: str) -> Any:
    return Agent("openai-chat:gpt-5-mini").run_sync(question)


@ragpulse.llm
def extract(question: str) -> Any:
    return Agent("openai-chat:gpt-5-mini", output_type=City).run_sync(question)


@ragpulse.rag
async def texts(question: str) -> AsyncIterator[str]:
    async with Agent("openai-chat:gpt-5-mini").run_stream(question) as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            yield text


@ragpulse.rag
async def texts_so_far(question: str) -> AsyncIterator[str]:
    """Without `delta` each item contains the earlier ones."""
    async with Agent("openai-chat:gpt-5-mini").run_stream(question) as result:
        async for text in result.stream_text(debounce_by=None):
            yield text


@ragpulse.rag
async def events(question: str) -> AsyncIterator[Any]:
    async with Agent("openai-chat:gpt-5-mini").run_stream_events(question) as stream:
        async for event in stream:
            yield event


@ragpulse.rag
def synchronous(question: str) -> Any:
    """The stream object is read by a method of its own."""
    return Agent("openai-chat:gpt-5-mini").run_stream_sync(question)


async def read() -> None:
    """Read each to its end."""
    for stream in (texts, texts_so_far, events):
        assert len([item async for item in stream("Where is Paris?")]) > 2


if __name__ == "__main__":
    ragpulse.configure()
    run("Where is Paris?")
    extract("Which city?")
    asyncio.run(read())
    stream = synchronous("Where is Paris?")
    assert list(stream.stream_text())
    ragpulse.flush()
