"""Does the answer say the reference: exact, fuzzy and rule-based matching, token F1, edit distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Literal, get_args

from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import nonempty_references, normalize_answer, words

Rule = Literal["match", "include", "startswith", "endswith", "fuzzy_match"]


def exact_match(response: str, reference: str | tuple[str, ...], *, normalize: bool = True) -> bool:
    """True where the answer equals a reference, after SQuAD's normalisation unless `normalize=False`."""
    form = normalize_answer if normalize else str
    return form(response) in map(form, nonempty_references(reference))


def fuzzy_match(response: str, reference: str | tuple[str, ...], *, whole_words: bool = False) -> bool:
    """True where the normalised answer contains a normalised reference (AdalFlow's AnswerMatchAcc "fuzzy_match").

    `whole_words=True` refuses "cat" in "concatenate".
    """
    if whole_words:
        said = words(response)
        return any(_runs_in(words(text), said) for text in nonempty_references(reference))
    answer = normalize_answer(response)
    return any(normalize_answer(text) in answer for text in nonempty_references(reference))


def _runs_in(part: list[str], whole: list[str]) -> bool:
    size = len(part)
    return size > 0 and any(whole[start : start + size] == part for start in range(len(whole) - size + 1))


def match(response: str, reference: str | tuple[str, ...], *, rule: Rule = "match", ignore_case: bool = False) -> bool:
    """True where the answer keeps PolyEval's `rule` towards a reference.

    `fuzzy_match`: either contains the other once normalised; an empty answer contains nothing and is in nothing.
    """
    keeps = _RULES[rule]
    form = normalize_answer if rule == "fuzzy_match" else str.casefold if ignore_case else str
    answer = form(response.strip())
    return bool(answer) and any(keeps(answer, form(text.strip())) for text in nonempty_references(reference))


_RULES: dict[str, Callable[[str, str], bool]] = {
    "match": str.__eq__,
    "include": str.__contains__,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "fuzzy_match": lambda answer, wanted: wanted in answer or answer in wanted,
}


def token_f1(response: str, reference: str | tuple[str, ...]) -> Outcome:
    """F1 of the tokens shared with the nearest reference (SQuAD 1.1, Rajpurkar et al. 2016); 0 where nothing is shared.

    Parts: precision and recall of that reference. Articles do not count; unspaced scripts count by character.
    """
    said = _content(response)
    return max(
        (_f1(said, _content(text)) for text in nonempty_references(reference)), key=lambda found: found.score or 0.0
    )


def _content(text: str) -> Counter[str]:
    normal = normalize_answer(text)
    return Counter(normal.split() if normal.isascii() else words(normal))


def _f1(said: Counter[str], wanted: Counter[str]) -> Outcome:
    shared = (said & wanted).total()
    precision = shared / said.total() if shared else 0.0
    recall = shared / wanted.total() if shared else 0.0
    f1 = 2.0 * precision * recall / (precision + recall) if shared else 0.0
    return Outcome(score=f1, parts={"precision": precision, "recall": recall})


def _exact_match(*, normalize: bool = True) -> Evaluator:
    return Function(exact_match, scale=Scale(), normalize=normalize)


def _fuzzy_match(*, whole_words: bool = False) -> Evaluator:
    return Function(fuzzy_match, scale=Scale(), whole_words=whole_words)


def _match(*, rule: Rule = "match", ignore_case: bool = False) -> Evaluator:
    if rule not in get_args(Rule):
        raise ConfigurationError(f"match has no rule {rule!r}; choose one of {', '.join(get_args(Rule))}")
    return Function(match, scale=Scale(), rule=rule, ignore_case=ignore_case)


def _token_f1(*, threshold: float | None = None) -> Evaluator:
    return Function(token_f1, scale=Scale(), threshold=threshold)


DISTANCES: Mapping[str, str] = {
    "levenshtein": "Levenshtein",
    "damerau_levenshtein": "DamerauLevenshtein",
    "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler",
    "hamming": "Hamming",
    "indel": "Indel",
}
"""The distance's name and that of rapidfuzz's module."""

_SLOW = frozenset({"damerau_levenshtein"})
"""Quadratic in time without rapidfuzz's bit-parallel tricks."""
_CELLS = 1_000_000_000
_SCALE = Scale(reverse=True)


def string_distance(
    response: str, reference: str | tuple[str, ...], *, metric: str = "levenshtein", ignore_case: bool = False
) -> Outcome:
    """The normalised distance to the nearest reference, 0 (equal) to 1; parts: min, avg and max over the references.

    `metric` is one of `DISTANCES`. Lower is better, so `normalized` is 1 - distance. `Unreadable` for texts too
    long for a slow metric.
    """
    form = str.casefold if ignore_case else str
    measure, references = _measure(metric), nonempty_references(reference)
    if metric in _SLOW and len(response) * max(map(len, references)) > _CELLS:
        raise Unreadable(f"{metric} of texts this long takes minutes; levenshtein does not")
    found = [measure(form(response), form(text)) for text in references]
    return Outcome(score=min(found), parts={"min": min(found), "avg": sum(found) / len(found), "max": max(found)})


@cache
def _measure(metric: str) -> Callable[[str, str], float]:
    import rapidfuzz.distance

    found: Callable[[str, str], float] = getattr(rapidfuzz.distance, DISTANCES[metric]).normalized_distance
    return found


def _string_distance(
    *, metric: str = "levenshtein", ignore_case: bool = False, threshold: float | None = None
) -> Evaluator:
    if metric not in DISTANCES:
        raise ConfigurationError(f"string_distance has no metric {metric!r}; choose one of {', '.join(DISTANCES)}")
    return Function(string_distance, scale=_SCALE, threshold=threshold, metric=metric, ignore_case=ignore_case)


_entry = partial(Entry, needs=("response", "reference"), scale=Scale())

ENTRIES: tuple[Entry, ...] = (
    _entry(
        name="exact_match",
        factory=_exact_match,
        source="SQuAD; AdalFlow AnswerMatchAcc",
        description="Does the answer equal the reference, apart from case, punctuation and articles?",
        example='get_evaluator("exact_match")',
    ),
    _entry(
        name="fuzzy_match",
        factory=_fuzzy_match,
        source="AdalFlow AnswerMatchAcc",
        description="Does the answer contain the reference?",
        example='get_evaluator("fuzzy_match", whole_words=True)',
    ),
    _entry(
        name="match",
        factory=_match,
        source="PolyEval Matchness",
        description="Does the answer equal, include, start or end with the reference, depending on `rule`?",
        example='get_evaluator("match", rule="startswith", ignore_case=True)',
    ),
    _entry(
        name="token_f1",
        factory=_token_f1,
        source="SQuAD 1.1 (Rajpurkar et al. 2016)",
        description="How many words do answer and reference share?",
        example='get_evaluator("token_f1", threshold=0.5)',
    ),
    Entry(
        name="string_distance",
        factory=_string_distance,
        needs=("response", "reference"),
        scale=_SCALE,
        source="PolyEval StringDistanceEvaluator; rapidfuzz",
        description="How many edits make the answer the reference, as a share of its length?",
        example='get_evaluator("string_distance", metric="jaro_winkler", threshold=0.2)',
    ),
)
