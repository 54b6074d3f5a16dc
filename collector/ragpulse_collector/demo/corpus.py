"""The demo's documents and the questions asked of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

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
)
"""A document of the archive that nobody should find any more."""


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
        """Return how telling a word is: high where few passages hold it."""
        n = self._documents[word]
        return math.log(1 + (len(self.entries) - n + 0.5) / (n + 0.5))

    def search(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """Return the k best passages with their scores, best first."""
        wanted = set(words(query))
        scored = [(self._score(number, wanted), number) for number in range(len(self.entries))]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:k]
        return [(self.entries[number], round(score, 4)) for score, number in best if score > 0]

    def _score(self, number: int, wanted: set[str]) -> float:
        counts, length = self._counts[number], self._lengths[number]
        norm = K1 * (1 - B + B * length / self._mean_length)
        return sum(self.idf(w) * counts[w] * (K1 + 1) / (counts[w] + norm) for w in wanted if w in counts)


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
