"""The order of all corrections of a judge's figure: weights, labels, missing verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from asking import ask, query_of
from click.testing import CliRunner
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.cli import cli
from ragpulse_collector.monitoring import Targets
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators.statistics import Interval, hajek, plus, ppi_mean

DAY = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z"}
NOW = T0 + timedelta(hours=6)
COUNT = 1500


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A service whose truth is known: a judge beside a check of every answer, with which chances."""

    pi: tuple[float, float] = (0.2, 0.2)
    """Of the judge: where the check scores below a half, and elsewhere."""
    kept: float = 1.0
    """By an upstream sampler, of answers that the check finds good."""
    users: int = 1
    """Answers of a user."""
    versions: int = 1
    labelled: float = 0.0
    dropped: float = 0.0
    """By the budget, of the answers that the judge was to be asked about."""


@dataclass(frozen=True)
class Row:
    """One stored answer, as the test knows it."""

    number: int
    good: bool
    check: float
    up: float
    pi: float
    drawn: bool
    dropped: bool
    verdict: float
    labelled: bool


def rows(planted: Planted) -> Iterator[Row]:
    """Answers of users who are alike; the judge errs on a twentieth of the good ones, a tenth of the bad ones."""
    for number in range(COUNT):
        ease = 0.5 * uniform(number // planted.users, "user") + 0.5 * uniform(number, "answer")
        check = min(1.0, max(0.0, 0.5 + 4.0 * (ease - 0.4) + 0.3 * (uniform(number, "check") - 0.5)))
        good = ease > 0.4
        up = planted.kept if check > 0.5 else 1.0
        if uniform(number, "kept") >= up:
            continue
        pi = planted.pi[check >= 0.5]
        drawn = uniform(number, "drawn") < pi
        wrong = uniform(number, "judge") < (0.05 if good else 0.1)
        yield Row(
            number, good, check, up, up * pi, drawn, drawn and uniform(number, "cap") < planted.dropped,
            float(good != wrong), uniform(number, "label") < planted.labelled,
        )  # fmt: skip


def plant(store: EmbeddedStore, planted: Planted) -> list[Row]:
    """Store them."""
    units, answers = Units(store), list(rows(planted))
    for row in answers:
        n, version = row.number, f"v{row.number % planted.versions}"
        units.unit(n, at=T0, user_id=f"u{n // planted.users}", upstream_pi=row.up)
        units.decision(n, "groundedness", pi=row.up, u=0.0, at=T0)
        units.score(n, "groundedness", row.check, at=T0)
        u = 0.0 if row.drawn else 0.999
        reason = "budget" if row.dropped else None
        if units.decision(n, "faithfulness", pi=row.pi, u=u, capped=row.dropped, reason=reason, at=T0):
            units.score(n, "faithfulness", row.verdict, judge="gpt", version=version, at=T0)
            if row.labelled:
                units.add("labels", trace_id=trace_id(n), span_id=0xAA, request_time=T0, evaluator="faithfulness",
                          score=float(row.good), passing=row.good, annotator="a", label_pi=planted.labelled,
                          created_at=T0)  # fmt: skip
    units.save()
    return answers


@pytest.mark.parametrize(("kept", "labelled", "dropped"), list(product((1.0, 0.25), (0.0, 0.7), (0.0, 0.3))))
def test_the_order_of_corrections(store: EmbeddedStore, kept: float, labelled: float, dropped: float) -> None:
    """Weights, labels, missing verdicts: each on what the one before left, and the truth is in it.

    A check that scored every answer changes nothing: the judge has its own interval, on pages as in targets.
    """
    planted = Planted(pi=(0.35, 0.25), kept=kept, labelled=labelled, dropped=dropped, users=2)
    answers = plant(store, planted)
    checked = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})
    judged = [row for row in answers if row.drawn and not row.dropped]
    pi, users = [row.pi for row in judged], [row.number // 2 for row in judged]
    interval = Interval.of(hajek([row.verdict for row in judged], pi, clusters=users))
    assert interval is not None
    if labelled:
        some = [row for row in judged if row.labelled]
        guesses, people = [row.verdict for row in some], [float(row.good) for row in some]
        chances = [row.pi * labelled for row in some]
        trusted = ppi_mean([row.verdict for row in judged], guesses, people, pi, chances)
        assert trusted is not None
        errors = [truth - trusted.lam * guess for truth, guess in zip(people, guesses, strict=True)]
        of_users = [row.number // 2 for row in some]
        error = Interval.of(hajek(errors, chances, clusters=of_users, bounds=(-1.0, 1.0)))
        assert error is not None
        parts = (trusted.lam * end for end in (interval.value, interval.lo, interval.hi))
        interval = plus(Interval(*parts), error).within(0.0, 1.0)
    lost = sum(1 / row.pi for row in answers if row.dropped)
    share = lost / (lost + sum(1 / chance for chance in pi))
    ends = interval.lo * (1 - share), interval.hi * (1 - share) + share
    shown = [checked[key] for key in ("value", "lo", "hi", "least", "most")]
    assert shown == pytest.approx([interval.value, interval.lo, interval.hi, *ends], abs=1e-9)
    truth = [(row.good if labelled else row.verdict, 1 / row.up) for row in answers]
    assert ends[0] < sum(value * weight for value, weight in truth) / sum(weight for _, weight in truth) < ends[1]
    settings = TargetSettings(metric="quality:faithfulness", min=0.5)
    (target,) = Targets(store, [settings])(query_of(DAY, NOW)).targets
    assert [target.value, target.lo, target.hi] == [checked[key] for key in ("value", "least", "most")]
    assert "narrowed" not in checked["words"] + checked["markdown"]


def test_what_narrowed_a_judge_is_ignored(
    store: EmbeddedStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For one release the parameter and the option are named in a warning; their keys are null."""
    plant(store, Planted())
    asked = {**DAY, "name": "quality:faithfulness", "step": "all"}
    plain, ignored = (ask(store, "metrics", {**asked, **more}) for more in ({}, {"assisted_by": "groundedness"}))
    assert plain == ignored
    assert "assisted_by is ignored" in caplog.text
    [line] = plain["series"]
    [point] = line["points"]
    assert [line["assisted_by"], *(point[key] for key in ("assisted_by", "unassisted", "assisted"))] == [None] * 4
    store.close()
    command = ["metrics", "quality:faithfulness", "--since", "5000d", "--db", str(tmp_path / "test.duckdb")]
    shown = CliRunner().invoke(cli, [*command, "--assisted-by", "groundedness"])
    assert shown.exit_code == 0, shown.output
    assert "--assisted-by is ignored" in shown.stderr


def test_check_says_that_the_evaluator_changed(store: EmbeddedStore) -> None:
    """As targets do: which version decides, and what does not count."""
    plant(store, Planted(pi=(1.0, 1.0), versions=2))
    note = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})["note"]
    assert note.startswith("the evaluator changed in this range: 750 answers of v")
    assert note.endswith("750 of v0 by gpt") or note.endswith("750 of v1 by gpt")
