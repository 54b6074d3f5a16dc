"""CrewAI with its instrumentation: two runs of one crew, each with the tokens of its own calls, once."""

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "false"}
import ragpulse

ragpulse.configure()
ragpulse.instrument("crewai")
from crewai import LLM, Agent, Crew, Task  # noqa: E402 - after `configure`, as in an application

GROUP = "crewai"
REQUIREMENTS = ["crewai", "openinference-instrumentation-crewai"]
EXPECTED = {
    "first": {"kind": "rag", "response": "Paris is the capital of France.", "input_tokens": 120},
    "second": {"kind": "rag", "response": "Paris is the capital of France.", "input_tokens": 120},
    "gpt-5-mini.llm_call": {"kind": "llm", "input_tokens": 120, "output_tokens": 5},
    "trace": {"input_tokens": 120, "output_tokens": 5},
}

MODEL = LLM(model="openai/gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
CLERK = Agent(role="support", goal="Answer customers", backstory="A clerk.", llm=MODEL, max_retry_limit=0)
CREW = Crew(agents=[CLERK], tasks=[Task(description="{question}", expected_output="One sentence.", agent=CLERK)])


@ragpulse.rag
def first(question: str) -> Any:
    return CREW.kickoff({"question": question})


@ragpulse.rag
def second(question: str) -> Any:
    return CREW.kickoff({"question": question})


if __name__ == "__main__":
    first("Where is Paris?")
    second("Where is Paris?")
    ragpulse.flush()
