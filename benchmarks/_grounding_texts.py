"""Answers written for this project: word for word from their contexts, as models dress them, and rephrased by hand.

Each line of `grounding_*.jsonl` (tests/evaluators/fixtures) holds three contexts, each with an answer to a question
about it.
The sixth collection is the test half; nothing is tuned on it. The five earlier collections are tuning data, their
former test halves included.

A language model (Claude) wrote the second and the third collection on 24 November 2026 and the others on 25 November
2026. It wrote the sixth, 96 answers to questions about 96 texts, after it read the evaluator's code and before it saw
which answers of the fifth fail.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.grounding.text import split_sentences

Half = Literal["tuning", "test"]
FOLDER = Path(__file__).resolve().parents[1] / "tests" / "evaluators" / "fixtures"
_FILES: dict[Half, tuple[str, ...]] = {
    "tuning": (
        "grounding_tuning.jsonl",
        "grounding_tuning_2.jsonl",
        "grounding_tuning_3.jsonl",
        "grounding_tuning_4.jsonl",
        "grounding_tuning_5.jsonl",
        "grounding_test.jsonl",
        "grounding_test_2.jsonl",
        "grounding_test_3.jsonl",
        "grounding_test_4.jsonl",
        "grounding_test_5.jsonl",
    ),
    "test": ("grounding_test_6.jsonl",),
}

_LEAD_INS: dict[Half, tuple[str, ...]] = {
    "tuning": (
        "Here is what I found:",
        "Here are the details:",
        "Sure! Here is a summary:",
        "To answer your question:",
    ),
    "test": ("Here's what the documents say:", "Below is an overview:", "Of course. The key points are:", "In short:"),
}
_PREFIXES: dict[Half, tuple[str, ...]] = {
    "tuning": ("Based on the provided documents, ", "According to the context, ", "As stated in the documentation, "),
    "test": ("Based on the information provided, ", "According to the sources, ", "The documentation states that "),
}
_CLOSINGS: dict[Half, tuple[str, ...]] = {
    "tuning": (
        "Is there anything else I can help you with?",
        "Let me know if you have any questions!",
        "I hope this helps!",
        "Feel free to ask if anything is unclear.",
        "Would you like more details?",
        "Thank you for your question.",
        "If you need further assistance, please contact our support team.",
    ),
    "test": (
        "Hope that answers your question.",
        "Please let me know if I can assist you with anything else.",
        "Do you want me to explain any of this in more detail?",
        "Don't hesitate to reach out if you need more help.",
        "If you have further questions, just ask!",
        "Happy to help with anything else.",
        "Have a great day!",
        "Thanks for reaching out!",
        "You're welcome!",
    ),
}
_GREETINGS: dict[Half, tuple[str, ...]] = {
    "tuning": ("Great question!", "Hello!", "Sure, I can help with that."),
    "test": ("Good question.", "Hi there!", "Certainly!", "Thanks for asking!"),
}


@dataclass(frozen=True)
class Answer:
    """One supported answer; `kind` is `verbatim`, `dressed` or `rephrased`."""

    kind: str
    case: Case


def answers(half: Half) -> Iterator[Answer]:
    """Yield every supported answer of a half."""
    count = 0
    for row in _rows(half):
        contexts = [{"id": f"faq-{n}", "text": text} for n, text in enumerate(row["contexts"], 1)]
        for n, (text, rephrased) in enumerate(zip(row["contexts"], row["rephrased"], strict=True), 1):
            yield Answer("verbatim", Case(response=text, contexts=contexts))
            yield Answer("rephrased", Case(response=rephrased, contexts=contexts))
            for dress in _DRESSES:
                yield Answer("dressed", Case(response=dress(text, n, half, count), contexts=contexts))
                count += 1


def _rows(half: Half) -> Iterator[dict[str, list[str]]]:
    for name in _FILES[half]:
        yield from map(json.loads, (FOLDER / name).read_text(encoding="utf-8").splitlines())


def _of(table: dict[Half, tuple[str, ...]], half: Half, count: int) -> str:
    phrases = table[half]
    return phrases[count % len(phrases)]


def _sentences(text: str) -> list[str]:
    return [s.text for s in split_sentences(text)]


def _bullets(text: str, rank: int, half: Half, count: int) -> str:
    lines = "\n".join(f"- {s}" for s in _sentences(text))
    return f"{_of(_LEAD_INS, half, count)}\n\n{lines}\n\n{_of(_CLOSINGS, half, count)}"


def _numbered(text: str, rank: int, half: Half, count: int) -> str:
    bold = [s.split(" ", 2) for s in _sentences(text)]
    lines = "\n".join(f"{n}. **{' '.join(words[:2])}** {words[2]} [{rank}]" for n, words in enumerate(bold, 1))
    return f"{_of(_LEAD_INS, half, count)}\n{lines}"


def _headed(text: str, rank: int, half: Half, count: int) -> str:
    cited = " ".join(f"{s[:-1]} [faq-{rank}]." for s in _sentences(text))
    return f"## Answer\n\n{cited}\n\n{_of(_CLOSINGS, half, count)}"


def _sourced(text: str, rank: int, half: Half, count: int) -> str:
    return f"{text} (source: faq-{rank})\n\n*{_of(_CLOSINGS, half, count)}*"


def _footnotes(text: str, rank: int, half: Half, count: int) -> str:
    cited = " ".join(f"{s}[^{n}]" for n, s in enumerate(_sentences(text), 1))
    notes = "\n".join(f"[^{n}]: faq-{rank}" for n, _ in enumerate(_sentences(text), 1))
    return f"{cited}\n\n{notes}"


def _linked(text: str, rank: int, half: Half, count: int) -> str:
    cited = f"{text[:-1]} ([faq-{rank}](https://docs.example.com/faq-{rank}))."
    return f"{_of(_GREETINGS, half, count)} {cited} {_of(_CLOSINGS, half, count)}"


def _table(text: str, rank: int, half: Half, count: int) -> str:
    rows = "\n".join(f"| {n} | {s} |" for n, s in enumerate(_sentences(text), 1))
    return f"| No. | Detail |\n| --- | :--- |\n{rows}\n\n> {_of(_CLOSINGS, half, count)}"


def _led_in(text: str, rank: int, half: Half, count: int) -> str:
    return f"{_of(_PREFIXES, half, count)}{text[0].lower()}{text[1:]} 【{rank}】 {_of(_CLOSINGS, half, count)}"


_DRESSES: tuple[Callable[[str, int, Half, int], str], ...] = (
    _bullets,
    _numbered,
    _headed,
    _sourced,
    _footnotes,
    _linked,
    _table,
    _led_in,
)
