"""smolagents: a tool-calling agent's answer, its whole run, and a model's message."""

from typing import Any

from smolagents import OpenAIServerModel, ToolCallingAgent

import ragpulse

GROUP = "smolagents"
REQUIREMENTS = ["smolagents[openai]"]
EXPECTED = {
    "run": {"kind": "agent", "response": "Paris"},
    "whole_run": {"kind": "agent", "response": "Paris"},
    "call": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
}

MODEL = OpenAIServerModel(model_id="gpt-5-mini", client_kwargs={"max_retries": 0})


@ragpulse.agent
def run(question: str) -> Any:
    return ToolCallingAgent(tools=[], model=MODEL, max_steps=2).run(question)


@ragpulse.agent
def whole_run(question: str) -> Any:
    return ToolCallingAgent(tools=[], model=MODEL, max_steps=2, return_full_result=True).run(question)


@ragpulse.llm
def call(question: str) -> Any:
    return MODEL.generate([{"role": "user", "content": question}])


if __name__ == "__main__":
    ragpulse.configure()
    run("Where is Paris?")
    whole_run("Where is Paris?")
    call("Where is Paris?")
    ragpulse.flush()
