"""CrewAI: a crew's output, its usage, and a model's text."""

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "false"}
from crewai import LLM, Agent, Crew, Task

import ragpulse

GROUP = "crewai"
REQUIREMENTS = ["crewai", "litellm"]
EXPECTED = {
    "kickoff": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120},
    "again": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120},
    "pair": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 240},
    "for_each": {"kind": "agent", "input_tokens": 240},
    "alone": {"kind": "agent", "response": "Paris is the capital of France.", "input_tokens": 120},
    "call": {"kind": "llm", "response": "Paris is the capital of France."},
}

MODEL = LLM(model="openai/gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")


def crew(size: int) -> Crew:
    clerks = [Agent(role="support", goal="Answer", backstory="A clerk.", llm=MODEL, max_retry_limit=0)] * size
    tasks = [Task(description="Where is {place}?", expected_output="One sentence.", agent=clerk) for clerk in clerks]
    return Crew(agents=clerks[:1], tasks=tasks)


ONE, TWO = crew(1), crew(2)


@ragpulse.agent
def kickoff(place: str) -> Any:
    return ONE.kickoff({"place": place})


@ragpulse.agent
def again(place: str) -> Any:
    return ONE.kickoff({"place": place})


@ragpulse.agent
def pair(place: str) -> Any:
    return TWO.kickoff({"place": place})


@ragpulse.agent
def for_each(places: list[str]) -> Any:
    return ONE.kickoff_for_each([{"place": place} for place in places])


@ragpulse.agent
def alone(question: str) -> Any:
    return Agent(role="support", goal="Answer", backstory="A clerk.", llm=MODEL).kickoff(question)


@ragpulse.llm
def call(question: str) -> Any:
    return MODEL.call(question)


if __name__ == "__main__":
    ragpulse.configure()
    kickoff("Paris")
    pair("Paris")
    again("Paris")
    for_each(["Paris", "Lyon"])
    alone("Where is Paris?")
    call("Where is Paris?")
    ragpulse.flush()
