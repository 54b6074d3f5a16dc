"""Labels, efficiency, composites, summaries and tournaments."""

from __future__ import annotations

import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators import Case, EvaluationResult, evaluate_sync, evaluator, get_evaluator
from ragpulse_evaluators.aggregate import Game, play, summarize, tournament
from ragpulse_evaluators.errors import ConfigurationError


def measured(name: str, cases: list[Case], **params: object) -> EvaluationResult:
    """The one result of a metric over a set."""
    results = evaluate_sync(cases, [name], params={name: params})[name]
    assert len(results) == 1
    return results[0]


def labelled(pairs: list[tuple[str, str]]) -> list[Case]:
    """Cases whose answers are labels."""
    return [Case(response=said, reference=wanted) for said, wanted in pairs]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("xyz")), min_size=1, max_size=25))
def test_label_metrics_agree_with_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    """Accuracy, macro precision and recall over three classes, an absent class counting 0."""
    said, wanted = (list(values) for values in zip(*pairs, strict=True))
    cases = labelled(pairs)
    assert measured("accuracy", cases).score == pytest.approx(sklearn.metrics.accuracy_score(wanted, said))
    for name, function in (("precision", sklearn.metrics.precision_score), ("recall", sklearn.metrics.recall_score)):
        expected = function(wanted, said, average="macro", zero_division=0)
        assert measured(name, cases).score == pytest.approx(expected)


def test_yes_and_no_are_binary_and_a_positive_label_can_be_named() -> None:
    """Precision of "yes" is 1/2, of "no" 1; the f1 comes along."""
    cases = labelled([("yes", "yes"), ("Yes.", "no"), ("no", "no")])
    assert measured("precision", cases).score == 0.5
    assert measured("recall", cases).score == 1.0
    assert measured("precision", cases, positive="no").score == 1.0
    assert measured("recall", cases).parts["f1"] == pytest.approx(2 / 3)


def test_cases_without_reference_are_left_out_and_counted() -> None:
    """Accuracy over two of three; over none it is skipped."""
    cases = [*labelled([("a", "a"), ("b", "a")]), Case(response="c")]
    found = measured("accuracy", cases)
    assert (found.score, found.parts["cases"], found.parts["skipped"]) == (0.5, 2, 1)
    assert measured("accuracy", [Case(response="c")]).status == "skipped"
    assert measured("accuracy", []).status == "skipped"


def test_roc_auc_ranks_numbers_against_labels() -> None:
    """Three of four pairs in order; text that is no number is invalid, and so is one kind alone."""
    cases = labelled([("0.9", "1"), ("0.4", "1"), ("0.5", "0"), ("0.1", "0")])
    assert measured("roc_auc", cases).score == 0.75
    assert measured("roc_auc", labelled([("high", "1"), ("0.1", "0")])).status == "invalid"
    assert measured("roc_auc", cases[:2]).status == "invalid"


def test_latency_and_cost_have_no_unit_form_without_target() -> None:
    """Seconds and dollars have no natural best; a target gives one."""
    case = Case(latency_s=4.0, cost_usd=0.002)
    plain = evaluate_sync([case], ["latency", "cost"])
    assert (plain["latency"][0].score, plain["latency"][0].normalized) == (4.0, None)
    assert plain["cost"][0].score == 0.002
    slow = evaluate_sync([case], ["latency"], params={"latency": {"target": 2.0}})["latency"][0]
    assert (slow.normalized, slow.passing) == (0.5, False)
    assert evaluate_sync([Case()], ["latency"])["latency"][0].status == "skipped"


def test_throughput_knows_three_windows() -> None:
    """One given, one from start to end, one as if in a row."""
    cases = [Case(latency_s=2.0, metadata={"start_time": f"2026-01-01T00:00:0{i}+00:00"}) for i in range(3)]
    assert measured("throughput", cases, window_s=6.0).score == 0.5
    assert measured("throughput", cases).score == pytest.approx(3 / 4)
    in_a_row = measured("throughput", [Case(latency_s=2.0), Case(latency_s=2.0)], target=1.0)
    assert (in_a_row.score, in_a_row.normalized, in_a_row.passing) == (0.5, 0.5, False)


def test_pass_rate_counts_what_passes_with_wilsons_interval() -> None:
    """Two of three exact matches: [0.208, 0.939]; the case without reference is skipped."""
    cases = [*labelled([("a", "a"), ("b", "b"), ("c", "a")]), Case(response="x")]
    found = measured("pass_rate", cases)
    assert found.score == pytest.approx(2 / 3)
    assert found.ci95 == pytest.approx((0.208, 0.939), abs=5e-4)
    assert found.parts["skipped"] == 1
    assert measured("pass_rate", cases, of="token_f1").status == "invalid"


@evaluator
def correctness_of(response: str) -> float:
    """A stand-in that is always 0.9."""
    return 0.9


@evaluator
def relevance_of(response: str) -> float:
    """A stand-in that is always 0.7."""
    return 0.7


@evaluator
def conciseness_of(response: str) -> float:
    """A stand-in that is always 0.8."""
    return 0.8


PARTS = {"correctness": correctness_of, "relevance": relevance_of, "conciseness": conciseness_of}
WEIGHTS = {"correctness": 0.5, "relevance": 0.3, "conciseness": 0.2}


def test_composite_reproduces_the_seed() -> None:
    """S3: .5·.9 + .3·.7 + .2·.8 = .82."""
    made = get_evaluator("composite", weights=WEIGHTS, evaluators=PARTS)
    found = evaluate_sync([Case(response="x")], made)["composite"][0]
    assert found.score == pytest.approx(0.82)
    assert found.parts == pytest.approx({"correctness": 0.9, "relevance": 0.7, "conciseness": 0.8})


def test_a_missing_part_makes_the_composite_invalid() -> None:
    """Not 0, and not the mean of what is left."""
    params = {"weights": {"exact_match": 1, "is_json": 1}}
    found = evaluate_sync([Case(response="{}")], ["composite"], params={"composite": params})["composite"][0]
    assert (found.status, found.score) == ("invalid", None)
    assert "exact_match (missing: reference)" in (found.explanation or "")


@pytest.mark.parametrize("weights", [{}, {"is_json": -1.0}, {"is_json": 0.0}])
def test_composite_weights_are_checked(weights: dict[str, float]) -> None:
    """When it is configured."""
    with pytest.raises(ConfigurationError, match="composite needs"):
        get_evaluator("composite", weights=weights)


def result(**fields: object) -> EvaluationResult:
    """A result of one evaluator."""
    return EvaluationResult.model_validate({"evaluator": "e", "version": "1", **fields})


def test_summary_never_averages_failures_in() -> None:
    """Invalid and skipped are counted; parsing success is below one."""
    report = summarize(
        [
            result(score=4.0, normalized=0.75, passing=True, parts={"faithfulness": 1}),
            result(score=2.0, normalized=0.25, passing=False, parts={"faithfulness": None}),
            result(status="invalid"),
            result(status="skipped"),
        ]
    )
    assert (report.mean, report.pass_rate, report.n) == (3.0, 0.5, 4)
    assert report.parsing_success == pytest.approx(2 / 3)
    assert report.counts == {"ok": 2, "skipped": 1, "invalid": 1, "error": 0}
    assert report.normalized is not None
    assert report.normalized.estimate == 0.5
    assert report.faithfulness == report.parts["faithfulness"] == 1.0
    assert "0.500" in str(report)


def test_summary_of_nothing_has_no_numbers() -> None:
    """None everywhere, never 0."""
    report = summarize([])
    assert (report.mean, report.pass_rate, report.parsing_success, report.normalized) == (None, None, None, None)
    with pytest.raises(AttributeError, match="has no 'usefulness'"):
        _ = report.usefulness


def test_summary_with_expectations_has_precision_recall_and_f1() -> None:
    """Verdicts pass, pass, fail against should, should not, should: P 1/2, R 1/2."""
    results = [result(passing=True), result(passing=True), result(passing=False)]
    report = summarize(results, expected=[True, False, True])
    assert (report.precision, report.recall, report.f1, report.accuracy) == pytest.approx((0.5, 0.5, 0.5, 1 / 3))


def test_summary_takes_what_evaluate_returns_and_refuses_to_pool() -> None:
    """One summary a name; two versions in one list are refused."""
    cases = labelled([("a", "a"), ("b", "a")])
    reports = summarize(evaluate_sync(cases, ["exact_match", "token_f1"]))
    assert reports["exact_match"].pass_rate == 0.5
    with pytest.raises(ConfigurationError, match="do not pool"):
        summarize([result(version="1"), result(version="2")])


def games(first: str, second: str, score: float, count: int) -> list[Game]:
    """The same game some times."""
    return [Game(first=first, second=second, score=score) for _ in range(count)]


def test_tournament_ranks_and_its_strengths_tell_the_chances() -> None:
    """v2 beats v1 three of four times, v3 loses to all: order, chances and the sign test."""
    played = (
        games("v2", "v1", 1.0, 30)
        + games("v1", "v2", 1.0, 10)
        + games("v3", "v1", 0.0, 20)
        + games("v2", "v3", 1.0, 20)
    )
    found = tournament(played)
    assert found.ranking == ("v2", "v1", "v3")
    assert sum(found.strengths.values()) == pytest.approx(1.0)
    chance = found.strengths["v2"] / (found.strengths["v2"] + found.strengths["v1"])
    assert chance == pytest.approx(0.75, abs=0.02)
    first = found.pairings[0]
    assert (first.first, first.second, first.wins, first.losses) == ("v1", "v2", 10, 30)
    assert first.p is not None
    assert first.p < 0.01


def test_tournament_is_symmetric_and_ties_decide_nothing() -> None:
    """Only ties: equal strengths, no p-value; mirrored games mirror nothing else."""
    tied = tournament(games("a", "b", 0.5, 6))
    assert tied.strengths["a"] == pytest.approx(tied.strengths["b"])
    assert tied.pairings[0].p is None
    assert tournament(games("a", "b", 1.0, 3)).strengths == pytest.approx(tournament(games("b", "a", 0.0, 3)).strengths)
    with pytest.raises(ConfigurationError, match="between two versions"):
        tournament(games("a", "a", 1.0, 1))


async def test_play_compares_every_two_versions_and_counts_the_unread() -> None:
    """A rule that prefers the longer answer, and cannot tell equal ones."""

    @evaluator
    def longer(response: str, second_response: str) -> float | None:
        return None if len(response) == len(second_response) else float(len(response) > len(second_response))

    answers = {"short": ["a", "b"], "long": ["aaa", "bbb"], "also short": ["x", "y"]}
    versions = {name: [Case(query="q", response=text) for text in texts] for name, texts in answers.items()}
    found = await play(versions, longer)
    assert found.ranking[0] == "long"
    assert found.unread == 2
