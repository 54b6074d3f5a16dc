"""The result of a replay: figures, distribution, what was left out, and the evaluator in use on the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, open_store, trace_id

from ragpulse_collector.analysis.compare.results import replay_result
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store.embedded import EmbeddedStore

NOW = T0 + timedelta(hours=2)
N = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """120 answers of 40 users that groundedness v1 scored online."""
    with closing(open_store(tmp_path)) as opened:
        units = Units(opened)
        for number in range(N):
            value = (number % 10) / 10
            units.unit(number, at=at(number), query=f"Question {number}?", user_id=f"u{number % 40}")
            units.decision(number, "groundedness", at=at(number))
            units.score(number, "groundedness", value, at=at(number), explanation=f"v1 says {value}")
        units.save()
        yield opened


def at(number: int) -> Any:
    """The time of a request."""
    return T0 + timedelta(seconds=number)


def replayed(store: EmbeddedStore, evaluator: str = "groundedness", *, units: int = N, **more: Any) -> None:
    """A replay of v2, 0.2 lower; every tenth is skipped, one is invalid."""
    rows = Units(store)
    for number in range(units):
        value = max(0, number % 10 - 2) / 10
        status = "skipped" if number % 10 == 9 else "invalid" if number == 5 else "ok"
        why = {"skipped": "no contexts", "invalid": "not JSON"}.get(status, f"v2 says {value}")
        key = rows.score(number, evaluator, value if status == "ok" else None, at=at(number), status=status,
                         version="v2", source="replay", run_id="r1", explanation=why, **more)  # fmt: skip
        job = rows.job(number, evaluator, at=at(number), run_id="r1", u=number / N)
        rows.add("run_items", run_id="r1", score_key=key, job_id=job, u=number / N)
    rows.add("runs", run_id="r1", evaluator=evaluator, version="v2", spec="{}", status="done", total=units,
             created_at=NOW, in_use=False)  # fmt: skip
    rows.save()


def test_the_figures_are_those_of_compare(store: EmbeddedStore) -> None:
    """Mean, interval, difference and verdict over the same answers, clustered by user."""
    replayed(store)
    result = replay_result(store, "r1", "groundedness")
    other = ask(store, "compare", {"a": "groundedness@v1", "b": "run:r1", "from": "-1d"}, clock=lambda: NOW)
    against = result.against
    assert against is not None
    assert (result.n, result.users, result.passed) == (107, 36, (24, 107))
    assert (against.evaluator, against.version, against.judge, against.shared) == ("groundedness", "v1", None, 107)
    for name in ("value", "lo", "hi"):
        assert getattr(against.difference, name) == pytest.approx(other["difference"][name])
        assert getattr(result, name) == pytest.approx(other["b"][name])
    assert (against.a, against.b) == (pytest.approx(other["a"]["value"]), pytest.approx(other["b"]["value"]))
    assert (against.verdict, against.least, against.most) == (
        other["verdict"],
        *map(pytest.approx, (other["least"], other["most"])),
    )
    assert against.verdict == "stricter"


def test_agreement_and_the_largest_disagreements(store: EmbeddedStore) -> None:
    """Both verdicts side by side, with both explanations and the texts."""
    replayed(store)
    against = replay_result(store, "r1", "groundedness").against
    assert against is not None
    counts = (against.both_pass, against.both_fail, against.only_a_fails, against.only_b_fails)
    assert counts == (24, 60, 0, 23)
    assert sum(counts) == against.shared
    assert against.agreement.value == pytest.approx(84 / 107)
    assert against.agreement.lo is not None
    assert len(against.largest) == 10
    first = against.largest[0]
    assert abs(first.a - first.b) == pytest.approx(0.2)
    assert (first.a_explanation, first.b_explanation) == (f"v1 says {first.a}", f"v2 says {first.b}")
    assert first.query is not None
    assert first.response == "Because."


def test_the_distribution_and_what_was_left_out(store: EmbeddedStore) -> None:
    """Ten bins of the scale; skipped and invalid units with their reasons."""
    replayed(store)
    result = replay_result(store, "r1", "groundedness")
    assert [one.n for one in result.histogram] == [36, 12, 12, 11, 12, 12, 12, 0, 0, 0]
    assert (result.histogram[0].lo, result.histogram[-1].hi) == (0.0, 1.0)
    assert [(one.status, one.reason, one.n) for one in result.left_out] == [
        ("skipped", "no contexts", 12), ("invalid", "not JSON", 1),
    ]  # fmt: skip


def test_an_evaluator_that_is_new_is_held_against_the_one_that_leads(store: EmbeddedStore) -> None:
    """Nothing else of its name is in use; where the one that leads scored nothing of these, another that did."""
    replayed(store, "is_json")
    against = replay_result(store, "r1", "groundedness").against
    assert against is not None
    assert (against.evaluator, against.version) == ("groundedness", "v1")
    other = replay_result(store, "r1", "faithfulness").against
    assert other is not None
    assert (other.evaluator, other.shared) == ("groundedness", against.shared)


def test_people_agree_or_not(store: EmbeddedStore) -> None:
    """Labels for this evaluator of the same answers."""
    replayed(store)
    units = Units(store)
    for number in range(40):
        row: dict[str, Any] = {"evaluator": "groundedness", "score": float(number % 10 >= 5), "created_at": at(number)}
        units.add("labels", trace_id=trace_id(number), span_id=0xAA, **row)
    units.save()
    result = replay_result(store, "r1", "groundedness")
    assert (result.labels, result.people.value) == (35, pytest.approx(28 / 35))


def test_people_and_unclear_answers_are_not_compared(store: EmbeddedStore) -> None:
    """Neither agreement nor disagreement."""
    test_people_agree_or_not(store)
    store.write(
        lambda tx: tx.execute("UPDATE raw.scores SET passing = NULL, label = 'unclear' WHERE NOT passing")
    ).result()
    result = replay_result(store, "r1", "groundedness")
    assert (result.labels, result.people.value) == (8, 1.0)


def test_scores_on_a_scale_of_their_own(store: EmbeddedStore) -> None:
    """Bins between the least and the highest; no comparison without a scale from 0 to 1."""
    units = Units(store)
    for number in range(11):
        key = units.score(number, "words", None, at=at(number), version="v2", source="replay", run_id="r1",
                          score=100.0 + number, passing=None)  # fmt: skip
        units.add("run_items", run_id="r1", score_key=key, u=number / N)
    units.add("runs", run_id="r1", evaluator="words", version="v2", spec="{}", status="done", total=11,
              created_at=NOW)  # fmt: skip
    units.save()
    result = replay_result(store, "r1", "groundedness")
    assert (result.value, result.passed, result.against) == (105.0, None, None)
    assert [(one.lo, one.n) for one in result.histogram] == [(100.0 + i, 1 + (i == 9)) for i in range(10)]


def test_a_stopped_replay_is_a_random_sample(store: EmbeddedStore) -> None:
    """A unit beyond the first gap in order of u was quick, and is no part of the mean."""
    replayed(store, units=60)
    units = Units(store)
    units.job(70, "groundedness", at=at(70), run_id="r1", u=70 / N)
    key = units.score(80, "groundedness", 1.0, at=at(80), version="v2", source="replay", run_id="r1")
    job = units.job(80, "groundedness", at=at(80), run_id="r1", u=80 / N)
    units.add("run_items", run_id="r1", score_key=key, job_id=job, u=80 / N)
    units.add("runs", run_id="r1", evaluator="groundedness", version="v2", spec='{"matching": 120}', status="capped",
              total=N, created_at=NOW + timedelta(minutes=1), in_use=False)  # fmt: skip
    units.save()
    assert replay_result(store, "r1", "groundedness").n == 53


def test_an_empty_replay_and_an_unknown_one(store: EmbeddedStore) -> None:
    """Nothing scored is no figure; 404 otherwise."""
    replayed(store, units=0)
    result = replay_result(store, "r1", "groundedness")
    assert (result.value, result.words, list(result.histogram), result.against) == (None, "nothing scored", [], None)
    with pytest.raises(NotFound, match="no replay 'r2'"):
        replay_result(store, "r2", "")
