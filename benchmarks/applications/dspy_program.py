"""dspy: a program's prediction, with the usage that dspy tracks."""

from typing import Any

import dspy

import ragpulse

GROUP = "dspy"
REQUIREMENTS = ["dspy"]
EXPECTED = {
    "answer": {"kind": "rag", "query": "Where is Paris?", "response": "Paris is the capital of France."},
    "predict": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5, "model": ...},
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


if __name__ == "__main__":
    ragpulse.configure()
    dspy.configure(lm=dspy.LM("openai/gpt-5-mini", temperature=1.0, max_tokens=16000, cache=False), track_usage=True)
    answer("Where is Paris?")
    ragpulse.flush()
