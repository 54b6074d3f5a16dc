"""Limits that were chosen for scores that meant something else are said, by `check` and when the collector starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_units import Units, open_store

from ragpulse_collector.app import Collector
from ragpulse_collector.cli import run
from ragpulse_collector.configuration import load_settings

LIMITS = """
[[monitor]]
name = "low"
metric = "quality:groundedness"
condition = "< 0.8"

[[monitor]]
name = "passing"
metric = "pass_rate:groundedness"
condition = "< 0.8"

[[target]]
metric = "score:groundedness"
min = 0.9

[[rule]]
name = "judged"
evaluators = ["refusal"]
rate = 0.1
strata = [{ where = "score.groundedness < 0.5", rate = 1.0 }]
"""


def scored_by(path: Path, label: str) -> Path:
    """A file with ten groundedness scores of the version with this label."""
    store = open_store(path)
    units = Units(store)
    for number in range(10):
        units.unit(number)
        units.decision(number, "groundedness")
        units.score(number, "groundedness", 0.9, label_version=label)
    units.save()
    store.close()
    return path / "test.duckdb"


def warnings_at_start(db: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a collector with the limits above says of meanings when it starts on this file."""
    config = db.parent / "ragpulse.toml"
    config.write_text(LIMITS, encoding="utf-8")
    settings = load_settings(config).with_options("collector", {"db": str(db), "port": 0})
    running = Collector(settings)
    running.start()
    running.stop()
    return [message for message in caplog.messages if "changed its meaning" in message]


def test_the_start_names_each_limit_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line for the evaluator; a limit on the pass rate is not touched."""
    (line,) = warnings_at_start(scored_by(tmp_path, "1"), caplog)
    assert "mean probability of the claims" in line
    assert line.endswith("look at the limits of monitor 'low', target 'score:groundedness', rule 'judged'")


def test_scores_of_today_alone_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store without former scores has no limits that were chosen for them."""
    assert warnings_at_start(scored_by(tmp_path, "5"), caplog) == []


@pytest.mark.parametrize(
    ("label", "note"),
    [
        ("1", "version 1 scored the weakest claim"),
        ("2", "not the share of supported ones"),
        ("3", "neither passing nor failing"),
        ("4", "worded too freely are unclear"),
        ("5", None),
    ],
)
def test_check_says_it_beside_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], label: str, note: str | None
) -> None:
    """Verdict and exit code stay; the note is on stderr."""
    db = scored_by(tmp_path, label)
    asked = ["check", "-e", "groundedness", "--min", "0.5", "--since", "520w", "--db", str(db)]
    assert run(asked) == 0
    err = capsys.readouterr().err
    assert (note or "") in err
    assert ("changed its meaning" in err) is (note is not None)
