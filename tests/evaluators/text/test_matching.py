"""Matching and token F1: seed examples, every script, and the traps of empty references."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.text import ENTRIES
from ragpulse_evaluators.text.matching import normalize_answer, words


def verdict(name: str, response: str, reference: str | tuple[str, ...], **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    made = next(entry for entry in ENTRIES if entry.name == name).factory(**params)
    return asyncio.run(made(Case(response=response, reference=reference)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower, in Paris!", "eiffel tower in paris"),
        ("«Où ?» — là…", "où là"),
        ("答案是：北京。", "答案是北京"),
        ("ＦＵＬＬ width", "full width"),
        ("STRASSE", normalize_answer("Straße")),
        ("The", "the"),
        ("!?", "!?"),
    ],
)
def test_normal_form_knows_every_script(text: str, expected: str) -> None:
    """Unicode punctuation goes, case folds, and nothing becomes the empty string."""
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world_x 3.5", ["hello", "world", "x", "3", "5"]),
        ("你好世界", ["你", "好", "世", "界"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Приве́т мир", ["приве́т", "мир"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("한국어 text", ["한국어", "text"]),
        ("ok 😀", ["ok", "😀"]),
    ],
)
def test_words_of_every_script(text: str, expected: list[str]) -> None:
    """Unspaced scripts by character, others by word with their marks, emoji kept."""
    assert words(text) == expected


def test_exact_match_reproduces_the_seed() -> None:
    """S3: the database question scores 1."""
    assert verdict("exact_match", "PostgreSQL", "PostgreSQL").score == 1.0
    assert verdict("exact_match", "The PostgreSQL.", "postgresql").passing is True
    assert verdict("exact_match", "The PostgreSQL.", "postgresql", normalize=False).passing is False


def test_any_of_several_references_will_do() -> None:
    """In whatever order they come."""
    assert verdict("exact_match", "no", ("yes", "no")).passing is True
    assert verdict("exact_match", "no", ("no", "yes")).passing is True


def test_fuzzy_match_finds_the_reference_inside() -> None:
    """AdalFlow's fuzzy accuracy; whole words on request."""
    assert verdict("fuzzy_match", "It was the Eiffel Tower.", "eiffel tower").passing is True
    assert verdict("fuzzy_match", "concatenate", "cat").passing is True
    assert verdict("fuzzy_match", "concatenate", "cat", whole_words=True).passing is False
    assert verdict("fuzzy_match", "eiffel", "eiffel tower").passing is False


@pytest.mark.parametrize("name", ["exact_match", "fuzzy_match", "match", "token_f1", "rouge", "bleu", "chrf"])
@pytest.mark.parametrize("reference", ["", "  ", ("", " ")])
def test_an_empty_reference_is_skipped(name: str, reference: str | tuple[str, ...]) -> None:
    """An empty text is contained in everything; it is no expectation at all."""
    assert verdict(name, "anything", reference).status == "skipped"


@pytest.mark.parametrize(
    ("rule", "response", "expected"),
    [
        ("match", "Paris", True),
        ("match", "Paris, France", False),
        ("include", "in Paris, France", True),
        ("startswith", "Paris, France", True),
        ("endswith", "It is Paris", True),
        ("endswith", "Paris it is", False),
        ("fuzzy_match", "par", True),
        ("fuzzy_match", "London", False),
        ("include", "in PARIS", False),
    ],
)
def test_match_keeps_each_rule(rule: str, response: str, expected: bool) -> None:
    """PolyEval's five rules towards the reference "Paris"."""
    assert verdict("match", response, "Paris", rule=rule).passing is expected


def test_match_ignores_case_on_request_and_empty_answers_never_match() -> None:
    """An empty answer is contained in the reference, which is no merit."""
    assert verdict("match", "PARIS", "paris", ignore_case=True).passing is True
    assert verdict("match", "", "paris", rule="fuzzy_match").passing is False
    with pytest.raises(ConfigurationError, match=r"rule='contains': .*'include'"):
        get_evaluator("match", rule="contains")


def test_token_f1_by_hand() -> None:
    """Two of three words shared with two of two: P 2/3, R 1, F1 0.8; nothing shared is 0."""
    found = verdict("token_f1", "the big red car", "red car")
    assert (found.score, found.parts["precision"], found.parts["recall"]) == pytest.approx((0.8, 2 / 3, 1.0))
    assert verdict("token_f1", "yes", "no").score == 0.0
    assert verdict("token_f1", "", "no").score == 0.0
    assert verdict("token_f1", "北京是首都", "北京").score == pytest.approx(4 / 7)


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=40).filter(str.strip))
def test_everything_matches_itself(text: str) -> None:
    """Whatever Unicode holds."""
    assert verdict("exact_match", text, text).passing is True
    assert verdict("fuzzy_match", text, text).passing is True


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=20).filter(str.strip), min_size=2, max_size=3))
def test_order_of_references_changes_nothing(response: str, references: list[str]) -> None:
    """Permuting the references changes no score, and every score stays within 0..1."""
    for name in ("exact_match", "fuzzy_match", "token_f1", "rouge", "string_distance"):
        forward, backward = (verdict(name, response, tuple(refs)) for refs in (references, references[::-1]))
        assert forward.score == backward.score
        assert forward.normalized is not None
        assert 0.0 <= forward.normalized <= 1.0
