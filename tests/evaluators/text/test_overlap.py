"""ROUGE, BLEU, chrF and METEOR against the libraries they follow."""

from __future__ import annotations

import asyncio
import string

import nltk.translate.meteor_score
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.text import ENTRIES

BRAZIL = ("Brazil is the five-time champion of the FIFA WorldCup.", "Brazil has won 5 FIFA World Cup titles")


ascii_text = st.lists(st.sampled_from([*"abcde", "the", "Cat", "sat", "on-mat", "x_y", ",", "3.5", "\n"]), max_size=16)


some_text = st.text(alphabet=string.ascii_letters + " .,é你好", min_size=1, max_size=30).filter(str.strip)


def verdict(name: str, response: str, reference: str | tuple[str, ...], **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    made = next(entry for entry in ENTRIES if entry.name == name).factory(**params)
    return asyncio.run(made(Case(response=response, reference=reference)))


@settings(max_examples=80, deadline=None)
@given(ascii_text, ascii_text, st.sampled_from(["rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum"]))
def test_rouge_agrees_with_rouge_score(response: list[str], reference: list[str], variant: str) -> None:
    """Precision, recall and F1 of Google's package on generated ASCII text."""
    said, wanted = " ".join(response), " ".join(["a", *reference])
    expected = rouge_scorer.RougeScorer([variant]).score(wanted, said)[variant]
    found = verdict("rouge", said, wanted, variant=variant)
    ours = (found.parts["precision"], found.parts["recall"], found.score)
    assert ours == pytest.approx((expected.precision, expected.recall, expected.fmeasure), abs=1e-9)


def test_rouge_reproduces_the_seed() -> None:
    """S1's example: rouge1 P .2, R .25, F .2222; rouge2 0."""
    found = verdict("rouge", *BRAZIL, variant="rouge1")
    assert (found.parts["precision"], found.parts["recall"]) == (0.2, 0.25)
    assert found.score == pytest.approx(0.2222, abs=5e-5)
    assert verdict("rouge", *BRAZIL, variant="rouge2").score == 0.0
    assert verdict("rouge", *BRAZIL).score == pytest.approx(0.2222, abs=5e-5)


@pytest.mark.parametrize(
    "text", ["巴西赢得了五次世界杯冠军", "Бразилия выиграла кубок", "فازت البرازيل بالكأس", "ブラジルが優勝"]
)
def test_identical_text_of_any_script_is_one(text: str) -> None:
    """rouge-score gives 0.0 for identical Chinese, Russian, Arabic or Japanese text."""
    for name in ("rouge", "bleu", "chrf", "token_f1"):
        assert verdict(name, text, text).score == pytest.approx(1.0)
    assert verdict("meteor", text, text).score == pytest.approx(1.0, abs=0.02)


def test_an_unknown_variant_is_refused() -> None:
    """When it is configured."""
    with pytest.raises(ConfigurationError, match="rougeX"):
        get_evaluator("rouge", variant="rougeX")


@settings(max_examples=40, deadline=None)
@given(some_text, st.lists(some_text, min_size=1, max_size=3), st.sampled_from(["exp", "none", "floor", "add-k"]))
def test_bleu_agrees_with_sacrebleu(response: str, references: list[str], smooth: str) -> None:
    """Over 100, with sacrebleu's tokenizer for the script."""
    tokenize = "zh" if any("\u4e00" <= c <= "\u9fff" for c in references[0]) else "13a"
    expected = sacrebleu.sentence_bleu(response, references, smooth_method=smooth, tokenize=tokenize).score
    found = verdict("bleu", response, tuple(references), smooth_method=smooth)
    assert found.score == pytest.approx(expected / 100, abs=1e-9)


def test_bleu_reproduces_the_seed() -> None:
    """S1's 0.0 is BLEU without smoothing; sacrebleu's default gives 4.99/100."""
    assert verdict("bleu", *BRAZIL, smooth_method="none").score == 0.0
    assert verdict("bleu", *BRAZIL).score == pytest.approx(0.0499, abs=5e-5)
    with pytest.raises(ConfigurationError, match="smooth_method"):
        get_evaluator("bleu", smooth_method="yes")


@settings(max_examples=30, deadline=None)
@given(some_text, st.lists(some_text, min_size=1, max_size=2), st.sampled_from([0, 2]))
def test_chrf_agrees_with_sacrebleu(response: str, references: list[str], word_order: int) -> None:
    """chrF and chrF++ over 100."""
    expected = sacrebleu.sentence_chrf(response, references, word_order=word_order).score
    found = verdict("chrf", response, tuple(references), word_order=word_order)
    assert found.score == pytest.approx(expected / 100, abs=1e-9)


@pytest.mark.parametrize("word_order", [0, 2])
def test_chrf_agrees_with_sacrebleu_on_any_size(word_order: int) -> None:
    """Nothing said, a lone surrogate, texts of hundreds of words, and more characters than are counted in arrays."""
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 1500)))
    long = [" ".join(f"word{n * step % 97}" for n in range(400)) for step in (3, 5)]
    for response, reference in (("?", "a b"), ("a\ud800b", "ab"), (long[0], long[1]), (many, many[700:] + "x")):
        expected = sacrebleu.sentence_chrf(response, [reference], word_order=word_order).score
        found = verdict("chrf", response, reference, word_order=word_order)
        assert found.score == pytest.approx(expected / 100, abs=1e-9)


class NoWordNet:
    """A WordNet without synonyms."""

    def synsets(self, word: str) -> list[object]:
        return []


@settings(max_examples=30, deadline=None)
@given(*(st.lists(st.sampled_from(["run", "running", "cats", "cat", "the", "blue"]), min_size=1, max_size=8),) * 2)
def test_meteor_agrees_with_nltk(response: list[str], reference: list[str]) -> None:
    """Exact and stem matches with nltk's parameters."""
    expected = nltk.translate.meteor_score.single_meteor_score(
        reference, response, stemmer=PorterStemmer(), wordnet=NoWordNet()
    )
    found = verdict("meteor", " ".join(response), " ".join(reference))
    assert found.score == pytest.approx(expected, abs=1e-9)


def test_huge_texts_end() -> None:
    """A slow distance says so, and summary ROUGE of one endless line is left to the fast way."""
    huge, other = "word salad " * 4000, "salad of words " * 3000
    assert verdict("string_distance", huge, other, metric="damerau_levenshtein").status == "invalid"
    found = verdict("rouge", huge, other, variant="rougeLsum")
    assert found.score == pytest.approx(float(verdict("rouge", huge, other).score or 0), abs=0.01)
