"""Sentences, tokens and facts: the ground the offline checks stand on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.grounding.facts import quantities
from ragpulse_evaluators.grounding.groundedness import assess
from ragpulse_evaluators.grounding.text import split_sentences, tokenize, words


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith paid 3.5 dollars. He left.", 2),
        ("The U.S. army, e.g. in 1944, won. J. K. Rowling wrote.", 2),
        ("It is tall.[1] It is old. [2, 3] It is iron.", 3),
        ("一句话。两句话！三句话？", 3),
        ("- first\n- second\n\n- third", 3),
        ("does it end ? yes . it does !", 3),
        ("यह एक वाक्य है। यह दूसरा है।", 2),
        ("... !!! \n", 0),
    ],
)
def test_sentence_count(text: str, count: int) -> None:
    """Abbreviations, decimals, marks, bullets and other scripts split as a reader would."""
    assert len(split_sentences(text)) == count


@given(st.text(max_size=300))
def test_offsets_hold_for_any_text(text: str) -> None:
    """Sentences and tokens are cut out of the text, in order, without overlap."""
    end = 0
    for piece in split_sentences(text):
        assert text[piece.start : piece.end] == piece.text
        assert piece.start >= end
        end = piece.end
    assert all(text[t.start : t.end] == t.text for t in tokenize(text))


@given(st.text(max_size=300))
def test_words_are_the_tokens_without_their_places(text: str) -> None:
    """Both ways of cutting a text find the same, in the same order."""
    placed = [(t.text, t.key, t.kind, t.content) for t in tokenize(text)]
    assert [(w.text, w.key, w.kind, w.content) for w in words(text)] == placed


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=3))
def test_any_text_is_assessed(response: str, contexts: list[str]) -> None:
    """No text raises, and every score lies in 0..1."""
    assessment = assess(response, contexts)
    scores = [s.score for s in assessment.sentences] + ([] if assessment.score is None else [assessment.score])
    assert all(0.0 <= score <= 1.0 for score in scores)


@pytest.mark.parametrize(
    ("text", "values", "unit"),
    [
        ("1,500,000 copies", {"1500000"}, None),
        ("1.5 million copies", {"1500000"}, None),
        ("seventy-three days", {"73"}, "day"),
        ("$20", {"20"}, "$"),
        ("35 %", {"35"}, "%"),
        ("99/99/2024", {"99/99/2024"}, None),
        ("1.000 km", {"1", "1000"}, "km"),
        ("二十五公斤", {"25"}, "kg"),
        ("三万人", {"30000"}, None),
    ],
)
def test_quantities(text: str, values: set[str], unit: str | None) -> None:
    """Digits, words, magnitudes and Chinese numerals read as numbers with their unit."""
    found = quantities(tokenize(text))
    assert [(set(q.values), q.unit) for q in found] == [(values, unit)]
