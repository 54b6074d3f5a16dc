"""Reading replies: tokens, not substrings; one object, not the first brace."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.judges.parsing import read_json, read_label, read_number, read_verdict, read_verdicts
from ragpulse_evaluators.judges.tokens import words_of

EN, ZH, PT = words_of("en"), words_of("zh"), words_of("pt")


@pytest.mark.parametrize(
    "text", ["是", "是的，上下文支持。", "答案：是", "**是**", "yes", "理由很充分。\n最终裁决：是"]
)
def test_a_chinese_yes_is_read(text: str) -> None:
    """Full-width punctuation, labels and marks around the word do not matter."""
    assert read_verdict(text, ZH) is True


@pytest.mark.parametrize("text", ["不是", "否。", "不，昨天不同", "答案: 否"])
def test_a_chinese_no_is_read(text: str) -> None:
    """A no that contains the word for yes is a no."""
    assert read_verdict(text, ZH) is False


@pytest.mark.parametrize(
    ("text", "verdict"), [("Sim, diz isso.", True), ("Não, ontem era outra coisa", False), ("NAO", False)]
)
def test_portuguese_verdicts_are_read(text: str, verdict: bool) -> None:
    """With and without accents."""
    assert read_verdict(text, PT) is verdict


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maybe",
        "It is untrue",
        "Yes and no",
        "是非曲直",
        "YES\nSo the answer is clear.\nVerdict: NO",
        "Notable",
        "Yesterday",
    ],
)
def test_what_is_no_verdict_is_unreadable(text: str) -> None:
    """Words that only begin like a verdict, and two verdicts that contradict, are nothing."""
    for words in (EN, ZH):
        with pytest.raises(Unreadable):
            read_verdict(text, words)


@pytest.mark.parametrize("text", ["Verdicts: Yes. No", "Yes.", "Verdicts: yes, perhaps, no", ""])
def test_a_line_of_verdicts_must_have_all_of_them(text: str) -> None:
    """Three statements need three verdicts and nothing else on the line."""
    with pytest.raises(Unreadable):
        read_verdicts(text, 3, EN)


@pytest.mark.parametrize(
    "text", ["[RESULT] B", "Feedback: x [RESULT] (B)", "[[B]]", "B\nbecause", "Winner is clear.\nVerdict: B"]
)
def test_labels_are_read_where_judges_put_them(text: str) -> None:
    """First line, labelled last line, double brackets, Prometheus' result."""
    assert read_label(text, ("A", "B"), EN) == "B"


@pytest.mark.parametrize("text", ["Both are good", "[[A]] or [[B]]", "Because", "C"])
def test_other_labels_are_unreadable(text: str) -> None:
    """Two marked labels or none."""
    with pytest.raises(Unreadable):
        read_label(text, ("A", "B"), EN)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_read_are_within_their_range(value: float) -> None:
    """Whatever a judge writes, what is read lies in the range and is the number written."""
    try:
        found = read_number(f"{value:f}", EN, lo=0, hi=1)
    except Unreadable:
        assert not (math.isfinite(value) and 0 <= round(value, 6) <= 1)
    else:
        assert found == pytest.approx(value, abs=1e-6)


@given(st.text())
def test_any_text_gives_a_value_or_is_unreadable(text: str) -> None:
    """What a reader returns is a value of its kind; it raises nothing but Unreadable."""
    readers: dict[Callable[[], object], Callable[[Any], bool]] = {
        lambda: read_verdict(text, EN): lambda found: found in (True, False),
        lambda: read_number(text, EN, lo=0, hi=1): lambda found: 0 <= found <= 1,
        lambda: read_label(text, ("A", "B"), ZH): lambda found: found in ("A", "B"),
        lambda: read_json(text): lambda found: isinstance(found, dict) and bool(found),
        lambda: read_verdicts(text, 2, PT): lambda found: len(found) == 2,
    }
    for read, fits in readers.items():
        try:
            found = read()
        except Unreadable:
            continue
        assert fits(found)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1} or {"a": 2}', "[1]", "{}", '{"a":', "{" * 50_000])
def test_what_is_not_one_object_is_unreadable(text: str) -> None:
    """NaN, two objects that differ, none, and a tower of braces."""
    with pytest.raises(Unreadable):
        read_json(text)


def test_an_object_is_found_in_prose_and_repeated_ones_are_one() -> None:
    """Fences and sentences around it do not matter."""
    assert read_json('So:\n```json\n{"a": {"b": 1}}\n```\nAgain {"a": {"b": 1}}') == {"a": {"b": 1}}


def test_a_language_without_prompts_is_refused() -> None:
    """The message lists the languages there are."""
    with pytest.raises(ConfigurationError, match="en, zh, pt"):
        words_of("xx")


@pytest.mark.parametrize(("text", "number"), [("80%", 0.8), ("Score: 1 %", 0.01), ("100%.", 1.0)])
def test_percentages_are_shares(text: str, number: float) -> None:
    """ "1%" is not the highest mark of a scale from 0 to 1."""
    assert read_number(text, EN, lo=0, hi=1) == pytest.approx(number)


def test_percentages_of_another_scale_are_unreadable() -> None:
    """80 % of what, on a scale from 1 to 5?"""
    with pytest.raises(Unreadable, match="out of 100, expected out of 5"):
        read_number("4%", EN, lo=1, hi=5)
