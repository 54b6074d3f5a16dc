"""Sentences, tokens and facts: the ground the offline checks stand on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.grounding.facts import is_derived, quantities
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
    ("text", "numbers", "unit"),
    [
        ("1,500,000 copies", {1_500_000}, None),
        ("1.5 million copies", {1_500_000}, None),
        ("seventy-three days", {73}, "day"),
        ("two hundred and fifty pages", {250}, None),
        ("$20", {20}, "$"),
        ("35 %", {35}, "%"),
        ("12 cents", {0.12}, None),
        ("2.4.1", set(), None),
        ("1.000 km", {1, 1000}, "km"),
        ("二十五公斤", {25}, "kg"),
        ("三万人", {30_000}, None),
        ("half an hour", {0.5}, "hour"),
        ("a year and a half", {1.5}, "year"),
        ("three quarters of an hour", {0.75}, "hour"),
        ("a third of the members", {33.33333333333333}, "½"),
        ("one in ten", {10}, "½"),
        ("1 in 5", {20}, "½"),
        ("two in five", {40}, "½"),
        ("at half their average", {50}, "½"),
        ("fell by a tenth", {10}, "½"),
        ("half a million people", {500_000}, None),
        ("a hundred people", {100}, None),
        ("two thousand five hundred", {2500}, None),
        ("$5m", {5_000_000}, "$"),
        ("USD 20", {20}, "$"),
        ("20 per cent", {20}, "%"),
        ("30％", {30}, "%"),
        ("-5 °C", {-5}, "celsius"),
        ("5 pounds", {5}, None),
    ],
)
def test_quantities(text: str, numbers: set[float], unit: str | None) -> None:
    """Digits, words, magnitudes, parts and Chinese numerals read as numbers with their unit."""
    found = quantities(tokenize(text))
    assert [(q.numbers, q.unit) for q in found] == [(numbers, unit)]


@pytest.mark.parametrize(
    "text", ["once a week", "at the end of a month", "the first half of the year", "a third party", "the second half"]
)
def test_what_is_no_quantity(text: str) -> None:
    """How often, which part and which one say no amount that could be wrong."""
    assert quantities(words(text)) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("nine weeks", "five working days", False),
        ("nine weeks", "63 days", True),
        ("a week", "five working days", False),
        ("one week", "five working days", True),
        ("two weeks", "a fortnight", False),
        ("two weeks", "fourteen days", True),
        ("about a month", "30 days", True),
        ("about a month", "five days", False),
        ("12 cents", "0.12 euros", True),
        ("12 cents", "12 euros", False),
        ("9 am", "9:00", True),
        ("9 am", "21:00", False),
        ("half past seven", "7:30", True),
        ("noon", "12:00", True),
        ("33 percent", "a third of them", True),
        ("one in ten", "10%", True),
        ("Python 3.10", "Python 3.1", False),
        ("12.40", "12.4", True),
        ("2.4.1", "2.4.1", True),
        ("2.4.1", "2.4.2", False),
        ("5 miles", "8 km", True),
        ("5 miles", "9 km", False),
        ("5 pounds", "£5", True),
        ("5 pounds", "5 lb", True),
        ("about a month", "four weeks", True),
        ("6 p.m.", "18:00", True),
        ("6 p.m.", "6 am", False),
        ("12 noon", "noon", True),
        ("0.15", "15%", True),
        ("1 kilometre", "1,000 metres", True),
        ("2 kilograms", "200 grams", False),
        ("-7 degrees", "7 degrees", False),
        ("2024-03-05", "2023-03-05", False),
    ],
)
def test_quantities_agree_by_value(one: str, other: str, same: bool) -> None:
    """Two ways to say one value agree, whatever the letters; two values do not."""
    mine, theirs = quantities(words(one)), quantities(words(other))
    assert (bool(mine) and all(any(q.agrees(o) for o in theirs) for q in mine)) is same


@pytest.mark.parametrize(
    ("claim", "evidence", "derived"),
    [
        ("Together they cost 30 euros.", "One costs 10 euros, the other 20 euros.", True),
        ("They cost 30 euros.", "One costs 10 euros, the other 20 euros.", False),
        ("Together they cost 40 euros.", "One costs 10 euros, the other 20 euros.", False),
        ("That is 2 hours later.", "One closes at 8, the other at 6.", True),
        ("Students pay 40 euros.", "The fee is 80 euros, half of that for students.", True),
        ("Students pay 60 euros.", "The fee is 80 euros, half of that for students.", False),
    ],
)
def test_derived_numbers_need_a_named_operation(claim: str, evidence: str, derived: bool) -> None:
    """A sum, a difference or a share is accepted from one sentence, where the claim names the operation."""
    tokens = words(claim)
    (quantity,) = quantities(tokens)
    assert is_derived(tokens, quantity, quantities(words(evidence))) is derived
