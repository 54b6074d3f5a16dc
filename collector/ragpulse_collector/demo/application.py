"""A small real RAG application: BM25 over the project's guides, an extractive answerer, three decorators.

Its release v2 carries a planted regression: it searches an archive as well. Where the archive's old FAQ is found,
answers are claims that no passage supports. The application does not tell anyone; the evaluators are to find it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import ragpulse
from ragpulse_collector.demo.corpus import ARCHIVE, Index, guides, passages, words

PROMPTS = {
    "v1": "Answer the question from the passages only, and cite the passage.",
    "v2": "Answer the question from the passages and the archive, and cite the passage.",
}
MADE_UP = (
    "This was certified by an independent laboratory in 2019.",
    "More than 4,000 companies rely on it every day.",
    "It needs at least 64 GB of memory and a GPU.",
    "Oracle and SAP ship it as their default.",
)
MADE_UP_SHARE = 0.04
"""How often an answer is made up where the archive was not found."""
TIMEOUT_SHARE = 0.015
MODELS = (("gpt-5-mini", "openai", 0.7), ("claude-haiku-4-5", "anthropic", 0.3))
"""Name, provider and share of the requests: the answers are extracted, the tokens counted, the prices theirs."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`])")

Generate = Callable[[str, Sequence[dict[str, Any]], str], Any]


class Application:
    """Question in, answer out; every step decorated."""

    def __init__(self, *, generate: Generate | None = None, seed: int = 7) -> None:
        found = passages(guides())
        self._indexes = {"v1": Index(found), "v2": Index([*found, *ARCHIVE])}
        self._chance = random.Random(seed)
        self._generate = generate or self._ask_a_model
        self._models = [
            ragpulse.llm(
                name="generate", model=model, provider=provider, query="question",
                response=lambda result: result["text"], usage=lambda result: result["usage"],
            )(self.extract)
            for model, provider, _ in MODELS
        ]  # fmt: skip
        self.trace_id = ""
        """The trace of the last answer, for feedback."""

    @ragpulse.rag(name="answer", query="question")
    def answer(self, question: str, *, prompt_version: str = "v1") -> str:
        """Answer a question about ragpulse."""
        self.trace_id = ragpulse.current_span().trace_id
        with ragpulse.attributes(prompt_name="qa", prompt_version=prompt_version):
            found = self.search(question, prompt_version)
            return str(self._generate(question, found, prompt_version)["text"])

    @ragpulse.retriever(name="bm25", query="query")
    def search(self, query: str, version: str, k: int = 4) -> list[dict[str, Any]]:
        """Return the k best passages of what this version searches."""
        found = self._indexes[version].search(query, k)
        return [{"id": passage.id, "text": passage.text, "score": score} for passage, score in found]

    def _ask_a_model(self, question: str, found: Sequence[dict[str, Any]], prompt_version: str) -> Any:
        (model,) = self._chance.choices(self._models, [share for *_, share in MODELS])
        return model(question, found, prompt_version)

    def extract(self, question: str, found: Sequence[dict[str, Any]], prompt_version: str) -> dict[str, Any]:
        """Answer with the sentences that hold the question's most telling words; a few calls fail."""
        if self._chance.random() < TIMEOUT_SHARE:
            raise TimeoutError("the model did not answer within 20 s")
        if not found:
            text = "I could not find this in the documentation."
        else:
            text = " ".join(f"{sentence} [{rank}]" for sentence, rank in self._best_sentences(question, found))
        outdated = any(passage["id"].startswith(ARCHIVE[0].id) for passage in found)
        if outdated or self._chance.random() < MADE_UP_SHARE:
            text = " ".join(self._chance.sample(MADE_UP, 2))
        prompt = PROMPTS[prompt_version] + question + "".join(passage["text"] for passage in found)
        return {"text": text, "usage": {"input_tokens": len(words(prompt)), "output_tokens": len(words(text))}}

    def _best_sentences(self, question: str, found: Sequence[dict[str, Any]], n: int = 2) -> list[tuple[str, int]]:
        wanted = set(words(question))
        scored = [
            (
                sum(self._indexes["v1"].idf(word) for word in wanted & set(words(sentence)))
                / (8 + len(words(sentence))),
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
