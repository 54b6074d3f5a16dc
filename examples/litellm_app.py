"""LiteLLM: usage, model and LiteLLM's own price are read from its answers, whole or streamed.

Run: `python litellm_app.py` asks a made-up answer (`mock_response`), so no key is needed; name a real model to use it.
"""

import sys
from typing import Any

import litellm

import ragpulse


@ragpulse.retriever
def search(query: str) -> list[dict[str, object]]:
    return [{"id": "1", "text": "Paris is the capital of France.", "score": 0.9}]


@ragpulse.llm(provider="litellm")
def complete(messages: list[dict[str, str]], model: str) -> Any:
    mock = "Paris." if model == "gpt-4o-mini" else None
    return litellm.completion(model=model, messages=messages, mock_response=mock)


@ragpulse.llm(provider="litellm")
def complete_stream(messages: list[dict[str, str]], model: str) -> Any:
    mock = "Paris it is." if model == "gpt-4o-mini" else None
    return litellm.completion(model=model, messages=messages, stream=True, mock_response=mock)


def messages(question: str) -> list[dict[str, str]]:
    found = "\n".join(str(item["text"]) for item in search(question))
    return [{"role": "system", "content": f"Answer from:\n{found}"}, {"role": "user", "content": question}]


@ragpulse.rag
def answer(question: str, model: str = "gpt-4o-mini") -> str:
    return str(complete(messages(question), model).choices[0].message.content)


@ragpulse.rag
def answer_stream(question: str, model: str = "gpt-4o-mini") -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in complete_stream(messages(question), model))


def main() -> None:
    ragpulse.configure(service_name="litellm-example")
    model = sys.argv[1] if len(sys.argv) > 1 else "gpt-4o-mini"
    print(answer("What is the capital of France?", model))
    print(answer_stream("What is the capital of France?", model))
    ragpulse.flush()


if __name__ == "__main__":
    main()
