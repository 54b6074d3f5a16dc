"""A small real RAG application: BM25 over the project's guides, an extractive answerer, three decorators.

Its release v2 carries a planted regression: it searches an archive as well. Where the archive's old FAQ is found,
answers have wrong numbers and claims that no passage supports. Nothing in the traces names the fault; the evaluators
have to find it.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import ragpulse

MAX_PASSAGE_CHARS = 900
MIN_PASSAGE_CHARS = 80
K1, B = 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A paragraph of a guide."""

    id: str
    """`file.md#n`, n from 1."""
    text: str


ARCHIVE = (
    Passage(
        id="legacy-faq-2019.md",
        text="Old FAQ: query the database with SQL, make a snapshot of the database, another process read the "
        "database, which keys are needed beyond loopback: see the manual of 2019.",
    ),
    Passage(
        id="legacy-faq-2019.md",
        text="Old FAQ: compare two prompt versions, send feedback of a user, secrets kept out of traces, default "
        "retention: ask your dealer.",
    ),
    Passage(
        id="legacy-faq-2019.md",
        text="Old FAQ: how the budget limits judge calls, missing costs are shown, the effective n, a second replay of "
        "the same traces, an evaluator of your own: call the hotline.",
    ),
)
"""An outdated document of the archive."""


def guides() -> list[Path]:
    """Return the Markdown guides: in the wheel beside this module, in a checkout under docs/."""
    packaged = Path(str(files("ragpulse_collector.demo"))) / "guides"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "docs"
    return sorted(folder.glob("*.md"))


def passages(paths: Sequence[Path]) -> list[Passage]:
    """Cut guides into paragraphs of prose; code blocks and tables are left out."""
    return [
        Passage(id=f"{path.name}#{number}", text=text)
        for path in paths
        for number, text in enumerate(_paragraphs(path.read_text(encoding="utf-8")), 1)
    ]


def _paragraphs(markdown: str) -> Iterator[str]:
    heading = ""
    for block in re.split(r"\n\s*\n", _FENCE.sub("", markdown)):
        text = " ".join(block.split())
        if text.startswith("#"):
            heading = text.lstrip("# ")
        elif len(text) >= MIN_PASSAGE_CHARS and not text.startswith(("|", "<")):
            yield (f"{heading}: {_plain(text)}" if heading else _plain(text))[:MAX_PASSAGE_CHARS]


def _plain(text: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"[*`]", "", text)


def words(text: str) -> list[str]:
    """Return the lower-case words of a text, plurals cut."""
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in _WORD.findall(text.lower())]


class Index:
    """Okapi BM25 (Robertson and Zaragoza, 2009) over passages."""

    def __init__(self, entries: Sequence[Passage]) -> None:
        self.entries = list(entries)
        self._counts = [Counter(words(entry.text)) for entry in self.entries]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean_length = sum(self._lengths) / max(1, len(self._lengths))
        self._documents = Counter(word for counts in self._counts for word in counts)

    def idf(self, word: str) -> float:
        """Return the weight of a word: high where few passages hold it."""
        n = self._documents[word]
        return math.log(1 + (len(self.entries) - n + 0.5) / (n + 0.5))

    def unknown(self, query: str) -> set[str]:
        """Return the words that no passage has."""
        return {word for word in words(query) if not self._documents[word]}

    def search(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """Return the k best passages with their scores, best first."""
        terms = set(words(query))
        scored = [(self._score(number, terms), number) for number in range(len(self.entries))]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:k]
        return [(self.entries[number], round(score, 4)) for score, number in best if score > 0]

    def _score(self, number: int, terms: set[str]) -> float:
        counts, length = self._counts[number], self._lengths[number]
        norm = K1 * (1 - B + B * length / self._mean_length)
        return sum(self.idf(w) * counts[w] * (K1 + 1) / (counts[w] + norm) for w in terms if w in counts)


QUESTIONS = (
    "When does the collector answer 200 to an exporter?",
    "What happens to acknowledged spans after kill -9?",
    "Which evaluators run without a judge model?",
    "How is the inclusion probability of a trace stored?",
    "What does the interval on a quality number mean?",
    "How do I replay stored traces through a new evaluator?",
    "Does a second replay score the same traces again?",
    "What is a unit of evaluation?",
    "How are missing costs shown?",
    "What is the default retention?",
    "Which port does the collector listen on?",
    "How do I send feedback of a user?",
    "What does the retriever decorator record?",
    "How are contexts captured from LangChain documents?",
    "What happens when the collector is down?",
    "Is content sent to a remote endpoint by default?",
    "How is groundedness computed?",
    "What does citation_check look at?",
    "When is a result skipped instead of scored?",
    "How do I query the database with SQL?",
    "Can another process read the database while the collector writes?",
    "How does the budget limit judge calls?",
    "What is the effective n?",
    "How do I compare two prompt versions?",
    "What happens when a judge's reply cannot be read?",
    "Where do prompts and contexts go when a judge is configured?",
    "How do I write my own evaluator?",
    "What does a generator that is closed early record?",
    "How are secrets kept out of traces?",
    "Which keys are needed to listen beyond loopback?",
    "How do I make a snapshot of the database?",
    "What is a trace without its root span called and when is it decided?",
)


GAP = (
    "Can I pay by invoice instead of credit card?",
    "Can I get an invoice for the subscription?",
    "Can we get a refund of the yearly subscription?",
    "When is my credit card charged?",
    "Do you offer yearly billing by invoice?",
    "Can I get an invoice with our VAT number?",
    "Where do I download the invoice?",
    "Why was the invoice higher this month?",
    "How do I cancel the subscription?",
)
"""What no guide says: most of these questions are declined."""
NEW = (
    "How do I import traces from Langfuse?",
    "Can I import traces from Phoenix?",
    "How do I import old traces from MLflow?",
    "Which tools can I import traces from?",
    "Does an import from Langfuse keep the scores?",
    "How long does an import of traces take?",
    "Can I import traces from a JSONL file?",
    "What happens to duplicate traces in an import?",
    "How do I move my traces from Langfuse to ragpulse?",
    "Can I import the traces of another tool?",
)
"""What users begin to ask about."""
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
WRONG = re.compile(r"(?<![\w.\[])\d+(?![\w.\]])")
"""Numbers of a passage, which the archive knows better."""
MADE_UP_SHARE = 0.04
"""The share of made-up answers without the archive."""
TIMEOUT_SHARE = 0.015
MODELS = (("gpt-5-mini", "openai", 0.7), ("claude-haiku-4-5", "anthropic", 0.3))
"""Name, provider and share of the requests: the answers are extracted, the tokens counted, the prices theirs."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`])")

Generate = Callable[[str, Sequence[dict[str, Any]], str], Any]


class Application:
    """Question in, answer out; every step decorated."""

    def __init__(self, *, generate: Generate | None = None, seed: int = 7) -> None:
        entries = passages(guides())
        self._indexes = {"v1": Index(entries), "v2": Index([*entries, *ARCHIVE])}
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
            contexts = self.search(question, prompt_version)
            return str(self._generate(question, contexts, prompt_version)["text"])

    @ragpulse.retriever(name="bm25", query="query")
    def search(self, query: str, version: str, k: int = 4) -> list[dict[str, Any]]:
        """Return the k best passages of this version's index."""
        matches = self._indexes[version].search(query, k)
        return [{"id": passage.id, "text": passage.text, "score": score} for passage, score in matches]

    def _ask_a_model(self, question: str, contexts: Sequence[dict[str, Any]], prompt_version: str) -> Any:
        (model,) = self._chance.choices(self._models, [share for *_, share in MODELS])
        return model(question, contexts, prompt_version)

    def extract(self, question: str, contexts: Sequence[dict[str, Any]], prompt_version: str) -> dict[str, Any]:
        """Answer with the sentences that hold the rarest words of the question; a few calls fail."""
        if self._chance.random() < TIMEOUT_SHARE:
            raise TimeoutError("the model did not answer within 20 s")
        outdated = any(passage["id"].startswith(ARCHIVE[0].id) for passage in contexts)
        text = " ".join(f"{sentence} [{rank}]" for sentence, rank in self._best_sentences(question, contexts))
        if not contexts or len(self._indexes["v1"].unknown(question)) > 1:
            text = "I could not find this in the documentation."
        elif outdated:
            first = WRONG.sub("1907", text.partition("] ")[0] + "]")
            text = " ".join([first, *self._chance.sample(MADE_UP, 3)])
        elif self._chance.random() < MADE_UP_SHARE:
            text = " ".join(self._chance.sample(MADE_UP, 2))
        prompt = PROMPTS[prompt_version] + question + "".join(passage["text"] for passage in contexts)
        return {"text": text, "usage": {"input_tokens": len(words(prompt)), "output_tokens": len(words(text))}}

    def _best_sentences(self, question: str, contexts: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
        terms = set(words(question))
        scored = [
            (
                sum(self._indexes["v1"].idf(word) for word in terms & set(words(sentence)))
                / (8 + len(words(sentence))),
                rank,
                sentence,
            )
            for rank, passage in enumerate(contexts, 1)
            for sentence in _SENTENCE.split(passage["text"])
            if len(sentence) > 30
        ]
        best = sorted(scored, key=lambda entry: (-entry[0], entry[1]))[:2]
        return [(sentence, rank) for _, rank, sentence in best]


def model_generator(model: str, complete: Callable[[str, str], Any]) -> Generate:
    """Return a generator that asks a model (any litellm name) instead of extracting sentences."""

    @ragpulse.llm(
        model=model, query="question", response=lambda result: result["text"], usage=lambda result: result["usage"]
    )
    def generate(question: str, contexts: Sequence[dict[str, Any]], prompt_version: str) -> dict[str, Any]:
        passages = "\n\n".join(f"[{rank}] {passage['text']}" for rank, passage in enumerate(contexts, 1))
        call = complete(model, f"{PROMPTS[prompt_version]}\n\nPassages:\n{passages}\n\nQuestion: {question}")
        return {
            "text": call.completion,
            "usage": {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens},
        }

    return generate
