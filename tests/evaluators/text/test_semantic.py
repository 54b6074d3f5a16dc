"""Embedding similarity and distances with a hand-made embedder; the extras say how to be installed."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import scipy.spatial.distance
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.text import ENTRIES

numbers = st.lists(st.integers(-9, 9), min_size=3, max_size=3).filter(any)
TEXTS = ("the car is red .", "parliament passed a budget")


class Numbers:
    """Reads a text as its vector: "1 2 3"."""

    id = "numbers"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(number) for number in text.split()] for text in texts]


def verdict(name: str, response: str, *references: str, **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    made = next(entry for entry in ENTRIES if entry.name == name).factory(**params)
    return asyncio.run(made(Case(response=response, reference=references)))


@settings(max_examples=30, deadline=None)
@given(numbers, numbers, st.sampled_from(["cosine", "euclidean", "manhattan", "chebyshev", "hamming"]))
def test_distances_agree_with_scipy(left: list[int], right: list[int], metric: str) -> None:
    """Every vector distance PolyEval names."""
    texts = [" ".join(map(str, vector)) for vector in (left, right)]
    found = verdict("embedding_distance", *texts, metric=metric, embedder=Numbers())
    scipy_name = {"manhattan": "cityblock"}.get(metric, metric)
    assert found.score == pytest.approx(getattr(scipy.spatial.distance, scipy_name)(left, right), abs=1e-9)
    assert (found.normalized is None) == (metric in ("euclidean", "manhattan", "chebyshev"))


@pytest.mark.parametrize("name", ["embedding_similarity", "semscore"])
def test_similarity_takes_the_nearest_reference_and_cuts_opposites_at_zero(name: str) -> None:
    """Cosine keeps its sign in the score; `normalized` has none."""
    assert verdict(name, "1 0", "0 1", "1 0", embedder=Numbers()).score == pytest.approx(1.0)
    opposite = verdict(name, "1 0", "-1 0", embedder=Numbers())
    assert [opposite.score, opposite.normalized] == pytest.approx([-1.0, 0.0])


def test_a_vector_of_zeros_is_invalid() -> None:
    """It has no direction, hence no cosine."""
    assert verdict("embedding_similarity", "0 0", "1 0", embedder=Numbers()).status == "invalid"


@pytest.mark.parametrize("name", ["embedding_similarity", "semscore"])
def test_an_embedder_may_be_a_plain_function(name: str) -> None:
    """As most libraries have it, with rows of an array; it is called in a thread, and its id is in the version."""

    class Plain:
        id = "plain"

        def embed(self, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
            assert threading.current_thread() is not threading.main_thread()
            return tuple(tuple(int(number) for number in text.split()) for text in texts)

    assert verdict(name, "1 0", "0 1", "1 0", embedder=Plain()).score == pytest.approx(1.0)
    other = type("Other", (Plain,), {"id": "other"})
    one, two = (get_evaluator(name, embedder=kind()).version for kind in (Plain, other))
    assert one != two


def test_the_embedder_is_part_of_the_version() -> None:
    """Scores of two embedding models do not compare."""
    factory = next(entry for entry in ENTRIES if entry.name == "semscore").factory
    assert factory(embedder=Numbers()).version != factory(embedder="wordllama").version


def test_an_unknown_metric_is_refused() -> None:
    """When it is configured."""
    with pytest.raises(ConfigurationError, match=r"metric='l3': .*'cosine'"):
        get_evaluator("embedding_distance", metric="l3")


@pytest.mark.parametrize(
    ("name", "library", "line"),
    [
        ("semscore", "wordllama", "pip install 'ragpulse[semantic]'"),
        ("embedding_similarity", "wordllama", "pip install 'ragpulse[semantic]'"),
    ],
)
def test_a_missing_library_is_an_error_with_the_install_line(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, line: str
) -> None:
    """Never silently skipped."""
    monkeypatch.setitem(sys.modules, library, None)
    found = verdict(name, "a", "b")
    assert found.status == "error"
    assert line in (found.explanation or "")


def test_bertscore_without_its_package_is_refused_when_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the install command, before any case is scored."""
    monkeypatch.setitem(sys.modules, "bert_score", None)
    with pytest.raises(ConfigurationError, match="pip install 'bert-score'"):
        get_evaluator("bertscore")


def test_the_offline_embedder_sees_meaning_not_order() -> None:
    """With the extra installed: near texts are nearer than far ones."""
    pytest.importorskip("wordllama", reason="the extra [semantic] is not installed")
    near = verdict("semscore", "The car is red.", "The automobile is red.")
    far = verdict("semscore", "The car is red.", "Parliament passed a budget.")
    assert float(near.score or 0) > float(far.score or 0) + 0.2


@pytest.fixture
def tiny_bert(tmp_path: Path) -> str:
    """The folder of a BERT of two small layers with weights by chance."""
    torch = pytest.importorskip("torch", reason="bertscore needs torch, which is not installed")
    pytest.importorskip("bert_score", reason="bert-score is not installed")
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXTS[0].split(), *TEXTS[1].split()]
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys(words)), encoding="utf-8")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt"), model_max_length=64).save_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertModel(transformers.BertConfig(vocab_size=32, **sizes)).save_pretrained(tmp_path)
    return str(tmp_path)


def test_bertscore_takes_a_model_of_ones_own(tiny_bert: str) -> None:
    """From its folder, without a download: equal texts score 1, others less, and the nearest reference counts."""
    same, other, nearest = (
        verdict("bertscore", TEXTS[0], *references, model=tiny_bert, layers=2)
        for references in (TEXTS[:1], TEXTS[1:], TEXTS[::-1])
    )
    assert [same.score, nearest.score] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert float(other.score or 0) < 0.99
    assert "layers=" in (verdict("bertscore", "a", "a", model=tiny_bert).explanation or "")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("The car is red.", "ok"),
        ("Das Auto fährt über die Brücke.", "ok"),
        ("السيارة حمراء", "skipped"),
        ("गाड़ी लाल है", "skipped"),
        ("கார் சிவப்பு", "skipped"),
        ("รถสีแดง", "skipped"),
        ("машина красная", "skipped"),
    ],
)
def test_the_offline_embedder_skips_scripts_that_it_does_not_know(text: str, status: str) -> None:
    """Unrelated texts in other scripts would seem alike: their letters are all unknown to it."""
    pytest.importorskip("wordllama")
    result = asyncio.run(get_evaluator("embedding_similarity")(Case(response=text, reference=text)))
    assert result.status == status
    assert ("Latin letters" in str(result.explanation)) is (status == "skipped")
