"""Texts in another Unicode form, texts without words, and empty answers."""

from __future__ import annotations

import json
import unicodedata

import pytest

from ragpulse_evaluators import Case, evaluate_sync, get_evaluator

COMPOSED = ("Café Zürich", "naïve façade", "Ångström", "한국어", "Tiếng Việt")
EQUAL = {
    "match": 1.0, "exact_match": 1.0, "fuzzy_match": 1.0, "bleu": 1.0, "chrf": 1.0, "string_distance": 0.0,
    "token_f1": 1.0, "rouge": 1.0,
}  # fmt: skip
APART = {
    "match": {"nfc": False}, "exact_match": {"normalize": False, "nfc": False}, "bleu": {"nfc": False},
    "chrf": {"nfc": False}, "string_distance": {"nfc": False},
}  # fmt: skip


def score(name: str, response: str, reference: str, **params: object) -> float | None:
    """The native score of one evaluator."""
    evaluator = get_evaluator(name, **params)
    (result,) = evaluate_sync([Case(response=response, reference=reference)], [evaluator])[name]
    assert result.status == "ok", result.explanation
    return result.score


@pytest.mark.parametrize("text", COMPOSED)
@pytest.mark.parametrize("name", EQUAL)
def test_a_decomposed_text_equals_its_composed_form(name: str, text: str) -> None:
    """In both directions."""
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    assert score(name, decomposed, text) == pytest.approx(EQUAL[name])
    assert score(name, text, decomposed) == pytest.approx(EQUAL[name])


@pytest.mark.parametrize("name", APART)
def test_a_setting_keeps_the_forms_apart(name: str) -> None:
    """`nfc=False`; the version of the default is that of before."""
    text = "Café Zürich"
    decomposed = unicodedata.normalize("NFD", text)
    assert score(name, decomposed, text, **APART[name]) != pytest.approx(EQUAL[name])
    assert get_evaluator(name).version != get_evaluator(name, nfc=False).version


@pytest.mark.parametrize("rule", ["match", "include", "startswith", "endswith", "fuzzy_match"])
@pytest.mark.parametrize("ignore_case", [True, False])
def test_every_rule_of_match_reads_composed_texts(rule: str, ignore_case: bool) -> None:
    """Each rule, with and without case."""
    decomposed = unicodedata.normalize("NFD", "Café")
    assert score("match", decomposed, "Café", rule=rule, ignore_case=ignore_case) == 1.0


def test_json_is_equal_in_texts_and_keys() -> None:
    """Also where the text is escaped; the setting keeps the forms apart."""
    decomposed = unicodedata.normalize("NFD", "é")
    answer, reference = json.dumps({decomposed: [decomposed]}), json.dumps({"é": ["é"]}, ensure_ascii=False)
    assert score("json_match", answer, reference) == 1.0
    assert score("json_match", answer, reference, nfc=False) == 0.0


@pytest.mark.parametrize("text", ["!!!", "？", "...", "→ ↔", "?! ?!", "+ - *"])
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("rouge", {}), ("rouge", {"variant": "rouge1"}), ("rouge", {"variant": "rougeLsum"}), ("token_f1", {}),
        ("fuzzy_match", {"whole_words": True}), ("exact_match", {}),
    ],
)  # fmt: skip
def test_equal_texts_without_letters_are_equal(name: str, params: dict[str, object], text: str) -> None:
    """And differ from another text without letters."""
    assert score(name, text, text, **params) == 1.0
    assert score(name, "~~", text, **params) == 0.0


@pytest.mark.parametrize("response", ["", "  \n"])
@pytest.mark.parametrize("name", ["groundedness", "citation_check", "context_utilization"])
def test_an_empty_answer_is_not_missing(name: str, response: str) -> None:
    """There is nothing to check; the answer is there. Without an answer the field is named."""
    case = Case(query="q", response=response, contexts=["Paris is in France."])
    (result,) = evaluate_sync([case], [name])[name]
    assert (result.status, "missing" in (result.explanation or "")) == ("skipped", False)
    assert "nothing to check: the response is empty" in (result.explanation or "")
    (absent,) = evaluate_sync([Case(query="q", contexts=["c"])], [name])[name]
    assert absent.explanation == "missing: response"


@pytest.mark.parametrize("response", ["", " "])
def test_an_empty_answer_does_not_answer(response: str) -> None:
    """*Answered* is 0."""
    (result,) = evaluate_sync([Case(response=response)], ["refusal"])["refusal"]
    assert (result.status, result.score) == ("ok", 0.0)


@pytest.mark.parametrize(
    ("name", "worst"), [("embedding_similarity", 0.0), ("semscore", 0.0), ("embedding_distance", 1.0)]
)
def test_an_empty_answer_is_like_no_reference(name: str, worst: float) -> None:
    """An embedding of nothing has no direction; the answer is compared all the same."""
    pytest.importorskip("wordllama")
    assert score(name, "", "Paris is in France.") == worst
