"""Names, versions, entry points and helpful errors."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import (
    Case,
    Evaluator,
    Registry,
    ScriptedJudge,
    default_registry,
    evaluator,
    get_evaluator,
    list_evaluators,
)
from ragpulse_evaluators.errors import ConfigurationError, UnknownEvaluator

NAMES = (
    "relevancy faithfulness correctness guideline pairwise context_precision context_recall context_relevancy "
    "statement_faithfulness answer_correctness answer_relevancy llm_similarity judge geval rubric conciseness "
    "helpfulness harmfulness bias toxicity grouse grouse_answer_relevancy grouse_completeness "
    "grouse_faithfulness grouse_usefulness grouse_positive_acceptance grouse_negative_rejection exact_match "
    "fuzzy_match match token_f1 accuracy precision recall roc_auc perplexity bleu rouge meteor chrf bertscore "
    "semscore string_distance embedding_similarity embedding_distance is_json json_match json_schema "
    "format_adherence regex retriever_recall retriever_relevance recall_at_k precision_at_k mrr hit_rate ndcg "
    "map latency cost throughput pass_rate composite custom_yaml groundedness context_utilization "
    "citation_check refusal groundedness_model "
)


def test_every_promised_name_is_registered() -> None:
    """The names of the interface, each once."""
    assert set(NAMES.split()) <= set(list_evaluators())


@pytest.mark.parametrize(("name", "package"), [("bleu", "sacrebleu"), ("chrf", "sacrebleu"), ("meteor", "nltk")])
def test_a_missing_package_is_named_with_its_install_command(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `ragpulse[text]` the evaluator stays listed; configuring it is refused before anything is scored."""
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert name in list_evaluators()
    with pytest.raises(ConfigurationError, match=rf"{name} needs the package {package}: .*'ragpulse\[text\]'"):
        get_evaluator(name)


def test_an_unknown_name_suggests_the_nearest() -> None:
    """A typing mistake is answered with the name that was meant."""
    with pytest.raises(UnknownEvaluator, match="did you mean 'faithfulness'"):
        get_evaluator("faithfullness")
    with pytest.raises(ConfigurationError, match="did you mean 'guidelines'"):
        get_evaluator("guideline", guideline="x")
    with pytest.raises(ConfigurationError, match="composite needs weights"):
        get_evaluator("composite")


def test_a_version_can_be_demanded_by_label_or_hex() -> None:
    """NAME@LABEL and NAME@HEX give that evaluator or refuse."""
    version = get_evaluator("correctness").version
    assert get_evaluator(f"correctness@{version[:6]}").version == version
    assert get_evaluator("correctness@1").version == version
    with pytest.raises(UnknownEvaluator, match=version):
        get_evaluator("correctness@ffffffffffff")


def test_shared_options_reach_only_those_that_know_them() -> None:
    """judge, embedder and language are offered by a mixed list; others must be known."""
    made = default_registry().get("exact_match", judge=ScriptedJudge([]), language="zh", embedder="x")
    assert made.judge is None
    assert get_evaluator("correctness", judge=ScriptedJudge([]), language="zh").language == "zh"


@pytest.mark.parametrize("name", ["context_utilization", "groundedness", "citation_check", "refusal", "exact_match"])
@pytest.mark.parametrize("option", ["embedder", "language", "prompts"])
def test_one_evaluator_refuses_what_it_would_ignore(name: str, option: str) -> None:
    """Asked for by name, an evaluator takes no parameter that changes nothing."""
    with pytest.raises(ConfigurationError, match=f"{name} has no parameter '{option}'; it would be ignored"):
        get_evaluator(name, **{option: "x"})


async def test_ready_evaluators_join_a_registry_and_get_the_judge_they_lack() -> None:
    """An instance hides an entry of its name; one made without a judge is given it as a copy."""

    @evaluator
    def polite(response: str) -> bool:
        return "please" in response

    bare = get_evaluator("faithfulness")
    bare.name = "grounded"
    registry = default_registry().with_(polite, bare)
    assert get_evaluator("polite", registry=registry) is polite
    equipped = get_evaluator("grounded", judge=ScriptedJudge(["YES"]), registry=registry)
    assert (await equipped(Case(response="r", contexts=["c"]))).score == 1.0
    assert bare.judge is None
    with pytest.raises(ConfigurationError, match="is an instance"):
        registry.get("polite", strict=True)


def test_two_entries_of_one_name_are_refused() -> None:
    """A registry never holds two meanings of a name."""
    entry = default_registry().entries[0]
    with pytest.raises(ConfigurationError, match="two evaluators"):
        Registry([entry, entry])


def test_every_entry_tells_what_a_person_should_know() -> None:
    """Description, source and an example that names the evaluator; needs, scale and cost as made."""
    for entry in default_registry().entries:
        assert entry.description.endswith((".", "?", ")")), entry.name
        assert entry.source, entry.name
        assert f'"{entry.name}"' in entry.example, entry.name


def test_an_installed_distribution_brings_evaluators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point group `ragpulse.evaluators` names an evaluator; it is registered beside our own."""
    meta = tmp_path / "acme_evals-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-evals\nVersion: 1.0\n", encoding="utf-8")
    (meta / "entry_points.txt").write_text("[ragpulse.evaluators]\nacme = acme_evals:loud\n", encoding="utf-8")
    code = "from ragpulse_evaluators import evaluator\n@evaluator\ndef loud(response: str) -> bool:\n    return True\n"
    (tmp_path / "acme_evals.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert "loud" in default_registry.__wrapped__().names


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("correctness", "score_threshold", "threshold"),
        ("pairwise", "enforce_consensus", "consensus"),
        ("custom_yaml", "yaml_specs", "spec"),
        ("match", "match_rule", "rule"),
        ("geval", "evaluation_steps", "steps"),
    ],
)
def test_parameter_names_of_other_packages_are_refused_with_ours(name: str, theirs: str, ours: str) -> None:
    """LlamaIndex's, PolyEval's and DeepEval's names."""
    with pytest.raises(ConfigurationError, match=f"no parameter '{theirs}'; it is called '{ours}' here"):
        get_evaluator(name, **{theirs: 1})


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("judge", {"n": "3"}, "judge: n='3': .*valid integer"),
        ("correctness", {"threshold": "4"}, "correctness: threshold='4': .*valid number"),
        ("rubric", {"span": [1, "5"]}, "rubric: span=.*valid number"),
        ("pass_rate", {"of": 3}, "pass_rate: of=3"),
        ("correctness", {"threshold": 0.5}, r"threshold=0\.5 is outside the scale 1\.\.5"),
        ("groundedness", {"threshold": 80}, r"threshold=80 is outside the scale 0\.\.1"),
        ("latency", {"threshold": -1}, r"threshold=-1 is outside the scale 0\.\.$"),
        ("faithfulness", {"judge": 42}, "a judge is a model's name or an object with id and ask"),
        ("semscore", {"embedder": object()}, "an embedder is a model's name or an object with embed"),
    ],
)
def test_wrong_values_are_refused_when_they_are_configured(name: str, params: dict[str, Any], message: str) -> None:
    """A text in place of a number, a threshold that every or no answer passes: refused before the first case."""
    with pytest.raises(ConfigurationError, match=message):
        get_evaluator(name, **params)


def test_lists_and_whole_numbers_serve_as_a_file_has_them() -> None:
    """TOML and JSON know neither tuples nor a difference between 2 and 2.0."""
    assert get_evaluator("rubric", span=[1, 5], threshold=2, judge=ScriptedJudge([])).scale.hi == 5


def test_a_constructor_that_fails_is_named() -> None:
    """A bug in a user's `__init__` is an error of configuration, with its cause."""

    def factory(*, path: Path) -> Evaluator:
        raise FileNotFoundError(path)

    entry = replace(default_registry().entries[0], name="loaded", factory=factory)
    with pytest.raises(ConfigurationError, match=r"loaded: FileNotFoundError: model\.bin") as failure:
        Registry([entry]).get("loaded", path="model.bin")
    assert isinstance(failure.value.__cause__, FileNotFoundError)
