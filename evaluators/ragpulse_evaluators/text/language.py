"""`language`: in which language is the answer, and is it that of the question? Read by scripts and by stop words."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.evaluator import PlainEvaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

UNKNOWN = "unknown"
_ENOUGH_WORDS = 10
_READ_CHARS = 4_000
_MOST = 0.6
"""The share of the words that are of one script, so that the text is of that script."""
_STOP_WORDS = 0.12
"""The share of stop words that a text has at least: a list of names or of code has fewer."""
_LEAD = 1.2
"""How many times the votes of the next language the votes for one have to be."""

_FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
_NO_TEXT = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\S+@\S+|<[^>\n]{1,200}>", re.DOTALL)
_UNSPACED = "".join(
    _FACTS["scripts"][name]["letters"] for name in ("Japanese", "Han", "Thai", "Lao", "Tibetan", "Burmese", "Khmer")
)
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u0670\u0900-\u0dff"
"""Signs within words that Python does not take for letters, and the scripts of India."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W\d_{_UNSPACED}](?:[^\W\d_{_UNSPACED}]|[{_MARKS}])*")


@cache
def _script(letter: str) -> str | None:
    return next(
        (name for name, script in _FACTS["scripts"].items() if re.match(f"[{script['letters']}]", letter)), None
    )


@cache
def _votes() -> dict[str, list[str]]:
    """The languages of each stop word, and of each letter that only a few have."""
    votes = defaultdict(list)
    for language, words in _FACTS["words"].items():
        for word in words.split():
            votes[word].append(language)
    for language, letters in _FACTS["letters"].items():
        for letter in letters:
            votes[f"letter {letter}"].append(language)
    return votes


def language_of(text: str) -> str:
    """The ISO 639-1 code of a text's language; `unknown` below ten words, and where none leads.

    Each character counts as a word in scripts without spaces. Code, addresses and tags are left out.
    """
    words = _WORD.findall(_NO_TEXT.sub(" ", text[:_READ_CHARS]).lower())
    if len(words) < _ENOUGH_WORDS:
        return UNKNOWN
    by_script = Counter(_script(word[0]) for word in words)
    if by_script["Japanese"] * 10 >= by_script["Han"] > 0:
        by_script["Japanese"] += by_script.pop("Han")
    script, n = by_script.most_common(1)[0]
    if script is None or n < _MOST * len(words):
        return UNKNOWN
    languages = _FACTS["scripts"][script]["languages"]
    return languages[0] if len(languages) == 1 else _by_stop_words(words, languages)


def _by_stop_words(words: list[str], languages: list[str]) -> str:
    votes, known, n = _votes(), dict.fromkeys(languages, 0.0), 0
    for word in words:
        voters = votes.get(word, ())
        n += bool(voters)
        for mark in (word, *(f"letter {letter}" for letter in set(word) if not "a" <= letter <= "z")):
            of = [language for language in votes.get(mark, ()) if language in known]
            for language in of:
                known[language] += 1.0 / len(of)
    (first, most), (_, second) = sorted(known.items(), key=lambda item: -item[1])[:2]
    return first if n >= _STOP_WORDS * len(words) and most >= _LEAD * second else UNKNOWN


class Language(PlainEvaluator):
    """Is the answer in the language of the question? The label is the language of the answer, as `en`.

    Score 1 = the same language, 0 = another one; no score where one of both is unknown: below ten words, or where no
    language leads. `fail_rate:language` is the share of answers in another language. Known are 67 languages, by their
    scripts and stop words; close ones (Danish and Norwegian) may stay unknown. Source: this project.
    """

    name = "language"
    needs = frozenset({"response"})
    immediate = True
    constants = MappingProxyType(
        {"facts": sha256_hex(json.dumps(_FACTS))[:12], "limits": (_ENOUGH_WORDS, _MOST, _STOP_WORDS, _LEAD)}
    )

    def run(self, case: Case) -> Outcome:
        """Tell the language of one answer, and compare it with that of its question."""
        answer, question = language_of(case.response or ""), language_of(case.query or "")
        parts = {"query": question, "response": answer}
        if UNKNOWN in (answer, question):
            unknown = "answer" if answer == UNKNOWN else "question"
            return Outcome(label=answer, parts=parts, explanation=f"The language of the {unknown} is unknown.")
        asked, given = (_FACTS["names"][language] for language in (question, answer))
        same = question == answer
        explanation = f"Question and answer are {given}." if same else f"The question is {asked}, the answer {given}."
        return Outcome(score=float(same), passing=same, label=answer, parts=parts, explanation=explanation)


ENTRIES = (
    Entry.of(
        Language,
        source="this project",
        description="Is the answer in the language of the question? Its label is the language of the answer.",
    ),
)
