"""
title: Notes, recorded by ragpulse
requirements: ragpulse
description: A pipe of Open WebUI. Paste this file under Admin, Functions; RAGPULSE_URL names the collector.
"""

import os
from typing import Any

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
}

ragpulse.configure(service_name="open_webui_pipe", endpoint=os.environ.get("RAGPULSE_URL", "http://127.0.0.1:4318"))


@ragpulse.retriever
def search(question: str) -> list[dict[str, Any]]:
    shared = {key: len(set(question.lower().split()) & set(text.lower().split())) for key, text in NOTES.items()}
    return [
        {"id": key, "text": NOTES[key], "score": shared[key]} for key in sorted(shared, key=lambda key: -shared[key])
    ]


@ragpulse.rag
def answer(question: str) -> str:
    return str(search(question)[0]["text"])


class Pipe:
    """What Open WebUI calls: `body` has the messages, `__user__` the person, `__metadata__` the chat."""

    def pipe(
        self, body: dict[str, Any], __user__: dict[str, Any] | None = None, __metadata__: dict[str, Any] | None = None
    ) -> str:
        """Answer the last message."""
        with ragpulse.attributes(user_id=(__user__ or {}).get("id"), session_id=(__metadata__ or {}).get("chat_id")):
            return answer(body["messages"][-1]["content"])


if __name__ == "__main__":
    question = {"role": "user", "content": "Is a refund possible after the purchase?"}
    print(Pipe().pipe({"messages": [question]}, {"id": "u1"}, {"chat_id": "c1"}))
