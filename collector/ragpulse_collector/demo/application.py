"""A small real RAG application: BM25 over the project's guides, an extractive answerer, three decorators.

Version v2 of its prompt carries a planted regression: it asks for a confident closing line, so answers end with
claims that no passage supports. The application does not tell anyone; the evaluators are to find it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ragpulse
from ragpulse_collector.demo.corpus import Index, words

PROMPTS = {
    "v1": "Answer the question from the passages only, and cite the passage.",
    "v2": "Answer the question from the passages. Sound confident and close with a strong statement about the product.",
}
CLOSING_LINES = (
    "This was certified by an independent laboratory in 2019.",
    "More than 4,000 companies rely on it every day.",
    "It needs at least 64 GB of memory and a GPU.",
    "Oracle and SAP ship it as their default.",
)
MODEL = "extractive"
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`])")

Generate = Callable[[str, Sequence[dict[str, Any]], str], Any]


class Application:
    """Question in, answer out; every step decorated."""

    def __init__(self, index: Index, *, generate: Generate | None = None) -> None:
        self._index = index
        self._generate = generate or self.extract

    @ragpulse.rag(name="answer", query="question")
    def answer(self, question: str, *, prompt_version: str = "v1") -> str:
        """Answer a question about ragpulse."""
        with ragpulse.attributes(prompt_name="qa", prompt_version=prompt_version):
            found = self.search(question)
            return str(self._generate(question, found, prompt_version)["text"])

    @ragpulse.retriever(name="bm25", query="query")
    def search(self, query: str, k: int = 4) -> list[dict[str, Any]]:
        """Return the k best passages."""
        return [
            {"id": passage.id, "text": passage.text, "score": score} for passage, score in self._index.search(query, k)
        ]

    @ragpulse.llm(
        model=MODEL,
        provider="ragpulse-demo",
        query="question",
        response=lambda result: result["text"],
        usage=lambda result: result["usage"],
    )
    def extract(self, question: str, found: Sequence[dict[str, Any]], prompt_version: str) -> dict[str, Any]:
        """Answer with the sentences that hold the question's most telling words."""
        if not found:
            text = "I could not find this in the documentation."
        else:
            text = " ".join(f"{sentence} [{rank}]" for sentence, rank in self._best_sentences(question, found))
        if prompt_version == "v2":
            text += " " + CLOSING_LINES[len(question) % len(CLOSING_LINES)]
        prompt = PROMPTS[prompt_version] + question + "".join(passage["text"] for passage in found)
        return {"text": text, "usage": {"input_tokens": len(words(prompt)), "output_tokens": len(words(text))}}

    def _best_sentences(self, question: str, found: Sequence[dict[str, Any]], n: int = 2) -> list[tuple[str, int]]:
        wanted = set(words(question))
        scored = [
            (
                sum(self._index.idf(word) for word in wanted & set(words(sentence))) / (8 + len(words(sentence))),
                rank,
                sentence,
            )
            for rank, passage in enumerate(found, 1)
            for sentence in _SENTENCE.split(passage["text"])
            if len(sentence) > 30
        ]
        best = sorted(scored, key=lambda entry: (-entry[0], entry[1]))[:n]
        return [(sentence, rank) for _, rank, sentence in best]


def model_generator(model: str, complete: Callable[[str, str], Any]) -> Generate:
    """Return a generator that asks a model (any litellm name) instead of extracting sentences."""

    @ragpulse.llm(
        model=model, query="question", response=lambda result: result["text"], usage=lambda result: result["usage"]
    )
    def generate(question: str, found: Sequence[dict[str, Any]], prompt_version: str) -> dict[str, Any]:
        passages = "\n\n".join(f"[{rank}] {passage['text']}" for rank, passage in enumerate(found, 1))
        call = complete(model, f"{PROMPTS[prompt_version]}\n\nPassages:\n{passages}\n\nQuestion: {question}")
        return {
            "text": call.completion,
            "usage": {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens},
        }

    return generate
