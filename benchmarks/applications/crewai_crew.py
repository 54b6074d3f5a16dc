"""CrewAI: a crew's output, its usage, and a model's text."""

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "false"}
from crewai import LLM, Agent, Crew, Task

import ragpulse

GROUP = "crewai"
REQUIREMENTS = ["crewai", "litellm"]
EXPECTED = {
    "kickoff": {"kind": "agent", "response": "Paris is the capital of France."},
    "call": {"kind": "llm", "response": "Paris is the capital of France."},
}

MODEL = LLM(model="openai/gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")


@ragpulse.agent
def kickoff(question: str) -> Any:
    clerk = Agent(role="support", goal="Answer customers", backstory="A clerk.", llm=MODEL, max_retry_limit=0)
    task = Task(description=question, expected_output="One sentence.", agent=clerk)
    return Crew(agents=[clerk], tasks=[task]).kickoff()


@ragpulse.llm
def call(question: str) -> Any:
    return MODEL.call(question)


if __name__ == "__main__":
    ragpulse.configure()
    kickoff("Where is Paris?")
    call("Where is Paris?")
    ragpulse.flush()
