"""Two lines, no decorator: the clients of OpenAI and Anthropic, whole and streamed."""

from anthropic import Anthropic
from openai import OpenAI

import ragpulse

GROUP = "instrument"
REQUIREMENTS = [
    "openai", "anthropic", "openinference-instrumentation-openai", "openinference-instrumentation-anthropic",
]  # fmt: skip
EXPECTED = {
    "ChatCompletion": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "model": ...},
    "create": {"kind": "llm", "response": "Paris is the capital of France.", "output_tokens": 5, "model": ...},
    "answer": {"absent": True},
}


def answer(question: str) -> None:
    messages = [{"role": "user", "content": question}]
    OpenAI().chat.completions.create(model="gpt-5-mini", messages=messages)  # type: ignore[arg-type]
    Anthropic().messages.create(model="claude-sonnet-4-5", max_tokens=50, messages=messages)  # type: ignore[arg-type]


if __name__ == "__main__":
    ragpulse.configure()
    ragpulse.instrument("openai", "anthropic")
    answer("Where is Paris?")
    ragpulse.flush()
