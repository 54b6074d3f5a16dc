"""agno: an agent's run with a tool, and its stream."""

from typing import Any

from agno.agent import Agent
from agno.models.openai import OpenAIChat

import ragpulse

GROUP = "agno"
REQUIREMENTS = ["agno", "openai"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris is the capital of France."},
    "stream": {"kind": "agent", "response": "Paris is the capital of France."},
    "call": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
}


def population(city: str) -> str:
    """Return a city's population."""
    return "two million"


def agent(*tools: Any) -> Agent:
    return Agent(model=OpenAIChat(id="gpt-5-mini", max_retries=0), tools=list(tools), telemetry=False)


@ragpulse.agent
def run(question: str) -> Any:
    return agent(population).run(question)


@ragpulse.agent
def stream(question: str) -> Any:
    return agent().run(question, stream=True)


@ragpulse.llm
def call(question: str) -> Any:
    return agent().run(question)


if __name__ == "__main__":
    ragpulse.configure()
    run("Where is Paris?")
    list(stream("Where is Paris?"))
    call("Where is Paris?")
    ragpulse.flush()
