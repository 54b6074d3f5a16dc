"""dspy: a program's prediction, whole and streamed, with the usage that dspy tracks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import dspy

import ragpulse

GROUP = "dspy"
REQUIREMENTS = ["dspy"]
EXPECTED = {
    "answer": {"kind": "rag", "query": "Where is Paris?", "response": "Paris is the capital of France."},
    "predict": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5, "model": ...},
    "stream": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5, "ttft_ms": ...},
    "search": {"contexts": ["Paris is the capital of France."]},
}


@ragpulse.retriever
def search(query: str) -> Any:
    return dspy.Prediction(passages=["Paris is the capital of France."])


@ragpulse.llm
def predict(question: str) -> Any:
    return dspy.ChainOfThought("question -> answer")(question=question)


@ragpulse.rag
def answer(question: str) -> Any:
    search(question)
    return predict(question)


@ragpulse.rag
async def stream(question: str) -> AsyncIterator[Any]:
    """Chunks of the field, then the whole prediction."""
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
    async for chunk in program(question=question):
        yield chunk


async def read() -> None:
    """Read the stream to its end; it has several chunks."""
    assert len([chunk async for chunk in stream("Where is Paris?")]) > 2


if __name__ == "__main__":
    ragpulse.configure()
    dspy.configure(lm=dspy.LM("openai/gpt-5-mini", temperature=1.0, max_tokens=16000, cache=False), track_usage=True)
    answer("Where is Paris?")
    asyncio.run(read())
    ragpulse.flush()
