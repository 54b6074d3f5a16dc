"""instructor: a pydantic model, alone and with its completion."""

from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel

import ragpulse

GROUP = "clients"
REQUIREMENTS = ["instructor", "openai"]
EXPECTED = {
    "extract": {
        "response": '{"name":"Paris","size":1}',
        "model": "gpt-5-mini",
        "input_tokens": 120,
        "output_tokens": 5,
    },
    "extract_both": {"response": '{"name":"Paris","size":1}', "model": "gpt-5-mini", "input_tokens": 120},
}

CLIENT = instructor.from_openai(OpenAI())
ASK: Any = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Which city?"}]}


class City(BaseModel):
    name: str
    size: int


@ragpulse.llm
def extract(question: str) -> City:
    return CLIENT.create(response_model=City, **ASK)


@ragpulse.llm
def extract_both(question: str) -> Any:
    return CLIENT.create_with_completion(response_model=City, **ASK)


if __name__ == "__main__":
    ragpulse.configure()
    extract("Which city?")
    extract_both("Which city?")
    ragpulse.flush()
