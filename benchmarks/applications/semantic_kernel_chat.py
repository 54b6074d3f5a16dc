"""semantic-kernel: a chat completion, a prompt's result, an agent's item, and a stream."""

import asyncio
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory

import ragpulse

GROUP = "semantic_kernel"
REQUIREMENTS = ["semantic-kernel"]
EXPECTED = {
    "call": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "prompt": {"kind": "llm", "response": "Paris is the capital of France."},
    "run": {"kind": "agent", "response": "Paris is the capital of France."},
    "stream": {"kind": "llm", "response": "Paris is the capital of France."},
}

MODEL = OpenAIChatCompletion(ai_model_id="gpt-5-mini")
SETTINGS = OpenAIChatPromptExecutionSettings()


def history(question: str) -> ChatHistory:
    chat = ChatHistory()
    chat.add_user_message(question)
    return chat


@ragpulse.llm
async def call(question: str) -> Any:
    return await MODEL.get_chat_message_content(history(question), SETTINGS)


@ragpulse.llm
async def prompt(question: str) -> Any:
    kernel = Kernel()
    kernel.add_service(MODEL)
    return await kernel.invoke_prompt(question)


@ragpulse.agent
async def run(question: str) -> Any:
    return await ChatCompletionAgent(service=MODEL, name="clerk").get_response(question)


@ragpulse.llm
def stream(question: str) -> Any:
    return MODEL.get_streaming_chat_message_content(history(question), SETTINGS)


async def main() -> None:
    """Run all of them in one event loop."""
    await call("Where is Paris?")
    await prompt("Where is Paris?")
    await run("Where is Paris?")
    [item async for item in stream("Where is Paris?")]


if __name__ == "__main__":
    ragpulse.configure()
    asyncio.run(main())
    ragpulse.flush()
