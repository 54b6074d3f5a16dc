"""pydantic-ai: an agent's output, text and model, and its usage."""

from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent

import ragpulse

GROUP = "agents"
REQUIREMENTS = ["pydantic-ai-slim[openai]"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "extract": {"response": '{"name":"Paris","size":1}', "input_tokens": 120, "model": "gpt-5-mini"},
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


if __name__ == "__main__":
    ragpulse.configure()
    run("Where is Paris?")
    extract("Which city?")
    ragpulse.flush()
