"""LiteLLM: whole and streamed, sync and async, with its own price."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import litellm

import ragpulse

GROUP = "dspy"
REQUIREMENTS = ["litellm"]
EXPECTED = {
    "whole": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5, "cost_usd": ...},
    "stream": {"response": "Paris is the capital of France.", "input_tokens": 120, "ttft_ms": ...},
    "answer": {"kind": "rag", "response": "Paris is the capital of France."},
    "trace": {"input_tokens": 240, "output_tokens": 10, "cost_usd": ...},
}

ASK: Any = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Where is Paris?"}]}


@ragpulse.llm
def whole(question: str) -> Any:
    return litellm.completion(**ASK)


@ragpulse.llm
async def stream(question: str) -> Any:
    return await litellm.acompletion(stream=True, stream_options={"include_usage": True}, **ASK)


@ragpulse.rag
async def answer(question: str) -> AsyncIterator[str]:
    whole(question)
    async for chunk in await stream(question):
        if chunk.choices:  # the last chunk may have only the usage
            yield chunk.choices[0].delta.content or ""


async def main() -> None:
    async for _ in answer("Where is Paris?"):
        pass


if __name__ == "__main__":
    ragpulse.configure()
    asyncio.run(main())
    ragpulse.flush()
