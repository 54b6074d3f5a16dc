"""The contract of an evaluator: needs, scale, version, and failures as values."""

import asyncio
import json
import linecache
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import (
    Case,
    EvaluationResult,
    Evaluator,
    Outcome,
    Scale,
    evaluate,
    evaluator,
    get_evaluator,
    load,
)
from ragpulse_evaluators.errors import ConfigurationError, Unreadable


@evaluator(version="2")
def has_citation(response: str) -> bool:
    """Does the response cite anything?"""
    return "[" in response


async def test_a_function_is_an_evaluator_by_its_parameter_names() -> None:
    """The parameter says what is needed; the label is the version; a bool is an assertion."""
    assert (has_citation.name, has_citation.version, set(has_citation.needs)) == ("has_citation", "2", {"response"})
    result = await has_citation(Case(response="Nine. [1]"))
    assert (result.score, result.passing, result.normalized, result.judge) == (1.0, True, 1.0, None)
    assert (await has_citation(Case())).explanation == "missing: response"


@pytest.mark.parametrize(
    ("value", "status", "score", "label"),
    [
        (0.25, "ok", 0.25, None),
        (7, "ok", 7.0, None),
        ("tone: dry", "ok", None, "tone: dry"),
        (None, "skipped", None, None),
        (math.nan, "invalid", None, None),
        ({"score": 0.5, "label": "so"}, "ok", 0.5, "so"),
        ({"key": "cited", "score": 1}, "ok", 1.0, None),
        ({"key": "tone", "value": "dry", "comment": "why"}, "ok", None, "dry"),
        ({"points": 1}, "invalid", None, None),
        ([1], "invalid", None, None),
        (Outcome(score=0.5, explanation="why"), "ok", 0.5, None),
        (EvaluationResult(score=0.5), "ok", 0.5, None),
    ],
)
async def test_a_function_returns_the_plainest_thing(
    value: Any, status: str, score: float | None, label: str | None
) -> None:
    """Numbers, labels, mappings, outcomes and None are all read."""

    @evaluator
    def returned(response: str) -> Any:
        return value

    result = await returned(Case(response="r"))
    assert (result.status, result.score, result.label, result.evaluator) == (status, score, label, "returned")


async def test_async_functions_options_and_aliases() -> None:
    """input, output, expected are S3's names; a defaulted parameter is an option; `trace` holds the run's facts."""

    @evaluator(limit=3)
    async def short(input: str, output: str, expected: str, trace: dict[str, Any], limit: int = 9) -> bool:
        await asyncio.sleep(0)
        return len(output) <= limit and trace["latency_s"] == 1.5 and input == "q" and expected == "g"

    result = await short(Case(query="q", response="abc", reference="g", latency_s=1.5))
    assert result.passing is True


def test_a_parameter_that_is_no_field_is_refused() -> None:
    """The message names the field that is meant."""
    with pytest.raises(ConfigurationError, match="'answer' is no case field; it is called 'response'"):

        @evaluator
        def wrong(answer: str) -> bool:
            return bool(answer)


async def test_a_failing_function_is_a_value_with_its_trace() -> None:
    """Neither the type, the message nor the place of an error is lost, and nothing is raised."""

    @evaluator
    def broken(response: str) -> float:
        return 1 / len(response)

    result = await broken(Case(response=""))
    assert (result.status, result.score, result.retriable) == ("error", None, False)
    assert result.explanation == "ZeroDivisionError: division by zero"
    assert "1 / len(response)" in (result.error or "")


async def test_cancellation_is_not_swallowed() -> None:
    """A cancelled evaluation ends as cancelled."""

    @evaluator
    async def forever(response: str) -> float:
        await asyncio.Event().wait()
        return 1.0

    task = asyncio.ensure_future(forever(Case(response="r")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Length(Evaluator):
    """A subclass with a native scale where lower is better."""

    name = "length"
    needs = frozenset({"response"})
    scale = Scale(lo=0, hi=10, reverse=True)

    async def run(self, case: Case) -> Outcome:
        """The number of characters."""
        return Outcome(score=float(len(case.response or "")))


async def test_scale_and_threshold_are_applied_in_the_better_direction() -> None:
    """Native score, normalized turned, passing at or below the threshold; beyond the scale is invalid."""
    result = await Length(threshold=4)(Case(response="abc"))
    assert (result.score, result.normalized, result.passing) == (3.0, 0.7, True)
    assert (await Length(threshold=2)(Case(response="abc"))).passing is False
    assert (await Length()(Case(response="x" * 11))).status == "invalid"


def test_versions_follow_parameters_and_nothing_else() -> None:
    """Equal parameters give equal versions; any change of them another; 12 hex digits."""
    assert Length(threshold=1).version == Length(threshold=1).version
    assert Length(threshold=1).version != Length(threshold=2).version
    assert len(bytes.fromhex(Length().version)) == 6


@pytest.mark.parametrize(
    ("scale", "score", "unit"),
    [
        (Scale(lo=1, hi=5), 3, 0.5),
        (Scale(hi=5, kind="ratio"), 2, 0.4),
        (Scale(lo=-1, kind="clip"), -0.5, 0.0),
        (Scale(hi=None), 12.5, None),
        (Scale(kind="open"), 12.5, None),
        (Scale(kind="open", reverse=True), 0.25, 0.75),
    ],
)
def test_scales_map_to_the_unit_interval(scale: Scale, score: float, unit: float | None) -> None:
    """Each kind of scale by hand."""
    assert scale.normalize(score) == unit


@pytest.mark.parametrize("score", [0.9, 5.1, math.nan, math.inf])
def test_a_score_off_its_scale_is_unreadable(score: float) -> None:
    """A mark beyond the range is never clipped into it."""
    with pytest.raises(Unreadable):
        Scale(lo=1, hi=5).normalize(score)


class Plain(Evaluator):
    """The least a subclass can be: a blocking `run`, an own constructor."""

    name = "plain"

    def __init__(self, word: str) -> None:
        self.word = word

    def run(self, case: Case) -> bool:
        """Is the word there?"""
        return self.word in (case.response or "")


async def test_a_subclass_may_block_and_keep_its_own_constructor() -> None:
    """Neither async nor super().__init__ is demanded."""
    result = await Plain("a")(Case(response="abc"))
    assert (result.score, result.passing, len(result.version)) == (1.0, True, 12)


async def test_plain_functions_and_classes_of_users_block_nobody() -> None:
    """Each runs in a thread: one waits for what another does, and the event loop goes on meanwhile."""
    opened = [threading.Event() for _ in range(3)]

    @evaluator
    def waits(response: str) -> bool:
        return opened[0].wait(60)

    class WaitsToo(Evaluator):
        name = "waits_too"

        def run(self, case: Case) -> bool:
            opened[0].set()
            return opened[1].wait(60)

    @evaluator
    async def opens(response: str) -> bool:
        opened[1].set()
        return True

    found = await evaluate([Case(response="r")], [waits, WaitsToo(), opens])
    assert [results[0].score for results in found.values()] == [1.0] * 3


def test_the_digest_of_the_source_stands_beside_the_version_of_a_user(tmp_path: Path) -> None:
    """It changes with the code where the hand-set version stays; built-in evaluators have none."""
    digests = []
    for body in ("True", "True", "False"):
        (tmp_path / "own.py").write_text(
            f"from ragpulse_evaluators import evaluator\n@evaluator(version='4')\ndef own(query):\n    return {body}\n"
        )
        linecache.checkcache()
        (own,) = load(tmp_path / "own.py")
        assert isinstance(own, Evaluator)
        assert own.version == "4"
        digests.append(own.version.source)
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests
    assert get_evaluator("exact_match").version.source is None


class Stated(Length):
    """A user's class that states its version as a text."""

    version = "3"  # type: ignore[assignment]


@evaluator(version="2")
def by_hand(response: str) -> bool:
    """A user's function."""
    return bool(response)


unreadable: dict[str, Any] = {}
exec("def typed(response):\n    return True", unreadable)


@pytest.mark.parametrize(
    ("made", "is_label", "label", "has_source"),
    [
        (get_evaluator("exact_match"), False, "1", False),
        (Length(), False, "1", True),
        (Stated(), True, "3", False),
        (by_hand, True, "2", True),
        (evaluator(unreadable["typed"]), True, "1", False),
    ],
    ids=["built in", "class", "stated", "function", "typed"],
)
def test_one_version_is_made_of_a_label_and_a_digest(
    made: Evaluator, is_label: bool, label: str, has_source: bool
) -> None:
    """The version is one of the two; what is stored beside it is the other, and the label where there is no other."""
    version = made.version
    assert (version == label, version.label, version.source is not None) == (is_label, label, has_source)
    assert version.beside == (version.source if is_label and has_source else label)
    assert pickle.loads(pickle.dumps(version)).beside == version.beside
    assert json.loads(json.dumps({"version": version})) == {"version": str(version)}
    assert type(EvaluationResult.of(made).version) is str
