"""`GET metrics` with `assisted_by`: a judge asked about a sample, narrowed by a check that scored every answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from click.testing import CliRunner
from stored_units import T0, Units, open_store, uniform

from ragpulse_collector.cli import cli
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators.statistics import AssistedEstimate, assisted_mean

COUNT = 600
DAY = {"from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z", "step": "1d"}
CHECKS = [uniform(number, "check") for number in range(COUNT)]
VERDICTS = [float(check + 0.4 * uniform(number, "judge") > 0.5) for number, check in enumerate(CHECKS)]
CHANCES = [0.4 if check < 0.5 else 0.15 for check in CHECKS]
DRAWN = [uniform(number) < pi for number, pi in enumerate(CHANCES)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An empty store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def fill(store: EmbeddedStore, *, unchecked: int = 0, skipped: int = 0, check_pi: float = 1.0, **judge: Any) -> None:
    """600 answers: all checked but for some, doubtful ones judged more often, the first of those drawn skipped."""
    units = Units(store)
    for number in range(COUNT):
        units.unit(number, service="a" if number % 2 else "b")
        if units.decision(number, "groundedness", pi=check_pi):
            checked = number >= unchecked
            units.score(
                number, "groundedness", CHECKS[number] if checked else None, status="ok" if checked else "skipped"
            )
        if units.decision(number, "faithfulness", pi=CHANCES[number]):
            told = {"value": None, "status": "skipped"} if number < skipped else {"value": VERDICTS[number]}
            units.score(number, "faithfulness", **(told | judge))
    units.save()


def expected(among: range = range(COUNT), *, unchecked: int = 0, skipped: int = 0) -> AssistedEstimate:
    """What the estimator says of the same answers."""
    found = assisted_mean(
        [VERDICTS[number] if DRAWN[number] and number >= skipped else None for number in among],
        [CHECKS[number] if number >= unchecked else None for number in among],
        [CHANCES[number] for number in among],
        drawn=[DRAWN[number] for number in among],
    )
    assert found is not None
    return found


def asked(store: EmbeddedStore, **params: Any) -> list[dict[str, Any]]:
    """The lines of the judge's day."""
    given = {"name": "quality:faithfulness", "assisted_by": "groundedness", **DAY, **params}
    lines: list[dict[str, Any]] = ask(store, "metrics", given)["series"]
    return lines


def assert_is(shown: dict[str, Any], found: AssistedEstimate) -> None:
    """The point is the estimator's, to 1e-9."""
    told = [shown[key] for key in ("value", "lo", "hi", "n", "n_eff")]
    assert told == pytest.approx([found.estimate, found.lo, found.hi, found.n, found.n_eff], abs=1e-9)
    assert shown["assisted"]["lam"] == pytest.approx(found.lam, abs=1e-9)
    assert shown["assisted"]["narrowing"] == pytest.approx(found.narrowing, abs=1e-9)


def test_a_point_is_the_assisted_estimate_and_keeps_the_plain_one(store: EmbeddedStore) -> None:
    """The same figures as `assisted_mean` on the answers; `unassisted` is what the plain series says."""
    fill(store)
    [line] = asked(store)
    [plain] = asked(store, assisted_by="")
    [shown], [before] = line["points"], plain["points"]
    assert_is(shown, expected())
    assert line["assisted_by"] == "groundedness"
    assert shown["unassisted"] == {key: before[key] for key in ("value", "lo", "hi")}
    assert shown["assisted"] | {"lam": 0, "narrowing": 0} == {
        "n_all": COUNT, "unchecked": 0, "lam": 0, "narrowing": 0, "note": None,
    }  # fmt: skip
    assert shown["hi"] - shown["lo"] < 0.8 * (before["hi"] - before["lo"])
    assert before["assisted"] is None


def test_each_group_is_assisted_by_its_own_answers(store: EmbeddedStore) -> None:
    """`group_by` and filters choose verdicts and checked answers alike."""
    fill(store)
    lines = {line["group"]["service"]: line["points"][0] for line in asked(store, group_by="service")}
    assert_is(lines["a"], expected(range(1, COUNT, 2)))
    assert_is(lines["b"], expected(range(0, COUNT, 2)))
    [filtered] = asked(store, service="a")
    assert_is(filtered["points"][0], expected(range(1, COUNT, 2)))


def test_answers_that_the_check_could_not_score_stay_in_and_tell_nothing(store: EmbeddedStore) -> None:
    """A missing check is counted and taken for the mean of the others, never for 0."""
    fill(store, unchecked=120)
    [shown] = asked(store)[0]["points"]
    assert (shown["assisted"]["n_all"], shown["assisted"]["unchecked"]) == (COUNT, 120)
    assert_is(shown, expected(unchecked=120))
    with_zeros = assisted_mean(
        [value if drawn else None for value, drawn in zip(VERDICTS, DRAWN, strict=True)],
        [0.0 if number < 120 else check for number, check in enumerate(CHECKS)],
        CHANCES,
    )
    assert with_zeros is not None
    assert abs(shown["value"] - with_zeros.estimate) > 1e-4


def test_a_drawn_answer_without_a_verdict_still_counts_as_drawn(store: EmbeddedStore) -> None:
    """The judge skipped some: how hard those were, the check knows, too."""
    fill(store, skipped=100)
    [shown] = asked(store)[0]["points"]
    assert shown["counts"]["skipped"] == sum(DRAWN[:100])
    assert_is(shown, expected(skipped=100))


def test_traffic_thinned_out_before_weighs_what_it_stands_for(store: EmbeddedStore) -> None:
    """An upstream sampler kept a fourth of some requests: the mean over all weighs them four times."""
    units, upstream = Units(store), [0.25 if number % 3 else 1.0 for number in range(COUNT)]
    for number, kept in enumerate(upstream):
        units.unit(number, upstream_pi=kept)
        units.decision(number, "groundedness", pi=kept, u=0.0)
        units.score(number, "groundedness", CHECKS[number])
        if DRAWN[number]:
            units.score(number, "faithfulness", VERDICTS[number])
        units.decision(number, "faithfulness", pi=kept * CHANCES[number], u=0.0 if DRAWN[number] else 0.99)
    units.save()
    found = assisted_mean(
        [value if drawn else None for value, drawn in zip(VERDICTS, DRAWN, strict=True)],
        CHECKS, [kept * pi for kept, pi in zip(upstream, CHANCES, strict=True)], upstream,
    )  # fmt: skip
    assert found is not None
    assert_is(asked(store)[0]["points"][0], found)


def test_two_versions_in_one_bucket_are_left_as_they_are(store: EmbeddedStore) -> None:
    """Which version an answer not drawn would have met, nothing says; hour by hour each has its own."""
    units = Units(store)
    for number in range(COUNT):
        at = T0 + timedelta(hours=number % 2)
        units.unit(number, at=at)
        units.decision(number, "groundedness", at=at)
        units.score(number, "groundedness", CHECKS[number], at=at)
        if units.decision(number, "faithfulness", pi=CHANCES[number], at=at):
            units.score(number, "faithfulness", VERDICTS[number], at=at, version=f"v{number % 2}")
    units.save()
    for line in asked(store):
        [shown] = line["points"]
        assert "several versions" in shown["assisted"]["note"]
        assert {key: shown[key] for key in ("value", "lo", "hi")} == shown["unassisted"]
    hourly = {line["version"]: [one for one in line["points"] if one["n"]] for line in asked(store, step="1h")}
    assert_is(hourly["v0"][0], expected(range(0, COUNT, 2)))
    assert_is(hourly["v1"][0], expected(range(1, COUNT, 2)))


def test_what_a_replay_judged_is_left_as_it_is(store: EmbeddedStore) -> None:
    """A replay's verdicts were drawn with chances of their own: the plain estimate, and why."""
    fill(store, version="v1")
    units = Units(store)
    for number in range(100):
        job = units.job(number, "faithfulness", run_id="run")
        key = units.score(number, "faithfulness", VERDICTS[number], version="v2", source="replay", run_id="run")
        units.add("run_items", run_id="run", job_id=job, score_key=key, u=uniform(number))
    units.add("runs", run_id="run", evaluator="faithfulness", version="v2", spec='{"matching": 400}', status="done",
              total=100, created_at=T0)  # fmt: skip
    units.save()
    shown = {line["version"]: line["points"][0] for line in asked(store)}
    assert shown["v2"]["n"] == 100
    assert "replay" in shown["v2"]["assisted"]["note"]
    assert shown["v2"]["value"] == shown["v2"]["unassisted"]["value"]
    assert_is(shown["v1"], expected())


def test_too_few_verdicts_say_so(store: EmbeddedStore) -> None:
    """Twenty judged do not tell how far a check may be trusted: the plain interval, with the reason."""
    units = Units(store)
    for number in range(100):
        units.unit(number)
        units.decision(number, "groundedness")
        units.score(number, "groundedness", CHECKS[number])
        if units.decision(number, "faithfulness", pi=0.2, u=number / 100):
            units.score(number, "faithfulness", VERDICTS[number])
    units.save()
    [shown] = asked(store)[0]["points"]
    assert shown["n"] == 20
    assert "too few judged" in shown["assisted"]["note"]
    assert {key: shown[key] for key in ("value", "lo", "hi")} == pytest.approx(shown["unassisted"])


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"name": "score:faithfulness"}, "share the scale from 0 to 1"),
        ({"name": "requests"}, "share the scale from 0 to 1"),
        ({"assisted_by": "faithfulness"}, "cannot assist itself"),
        ({"corrected": "true"}, "either corrected or assisted_by"),
        ({"assisted_by": "refusal"}, "refusal was to score only 0 of the 600 answers that faithfulness"),
        ({"assisted_by": "words"}, "words has no scores from 0 to 1"),
    ],
)
def test_what_cannot_assist_is_refused(store: EmbeddedStore, params: dict[str, str], told: str) -> None:
    """Another scale, the judge itself, a second correction, a check that ran on nothing, one that counts words."""
    fill(store)
    units = Units(store)
    for number in range(COUNT):
        units.decision(number, "words")
        units.score(number, "words", None, score=40.0, passing=None)
    units.save()
    with pytest.raises(ValueError, match=told):
        asked(store, **params)


def test_a_check_drawn_by_chance_is_refused(store: EmbeddedStore) -> None:
    """Half of the answers are checked, by the draw that also chooses whom the judge sees."""
    fill(store, check_pi=0.5)
    with pytest.raises(ValueError, match=r"groundedness was to score only 0 of the 600 .* a rule at rate 1\.0"):
        asked(store)


def test_the_command_line_tells_how_much_narrower(store: EmbeddedStore, tmp_path: Path) -> None:
    """`ragpulse metrics quality:NAME --assisted-by CHECK` over a closed file; an unknown check is one line."""
    fill(store)
    store.close()
    command = ["metrics", "quality:faithfulness", "--since", "5000d", "--step", "5000d", "--db",
               str(tmp_path / "test.duckdb"), "--assisted-by"]  # fmt: skip
    answer = CliRunner().invoke(cli, [*command, "groundedness"])
    assert "assisted by groundedness" in answer.output
    assert f"x {expected().narrowing:.2f} as wide: 600 answers, 0 unchecked" in answer.output
    refused = CliRunner().invoke(cli, [*command, "refusal"])
    assert refused.exit_code == 1
    assert "refusal was to score only 0 of the 600 answers" in str(refused.exception) + refused.output


def test_a_replay_of_the_past_and_the_rule_that_follows_are_one_line(store: EmbeddedStore) -> None:
    """Last day is replayed with v2, then a rule uses v2: one line of v2, marked where rules began."""
    units = Units(store)
    units.add("runs", run_id="run", evaluator="judge", version="v2", judge=None, status="done", total=100,
              spec='{"matching": 100}', created_at=T0)  # fmt: skip
    for number in range(200):
        at, old = T0 + timedelta(hours=number // 100), number < 100
        units.scored(number, "judge", 1.0, at=at, version="v1" if old else "v2")
        if old:
            job = units.job(number, "judge", at=at, run_id="run")
            key = units.score(
                number, "judge", float(number % 4 > 0), at=at, version="v2", source="replay", run_id="run"
            )
            units.add("run_items", run_id="run", job_id=job, score_key=key, u=uniform(number))
    units.save()
    answer = ask(store, "metrics", {"name": "quality:judge", "from": T0, "to": T0 + timedelta(hours=2), "step": "1h"})
    first, second = answer["series"]
    assert (first["version"], second["version"]) == ("v1", "v2")
    assert [(one["value"], one["n"], one["replayed"]) for one in second["points"]] == [(0.75, 100, 100), (1.0, 100, 0)]
    assert (first["online_since"], second["online_since"]) == ("2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z")
    assert [mark["t"] for mark in answer["markers"] if mark["kind"] == "version"] == ["2026-11-20T13:00:00Z"]
