"""What a terminal shows is for people: no dict, no raw second, no microsecond, no padding, and *answered*."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from traffic import rag_trace, scored, send

from ragpulse_collector.app.serve import _leaving
from ragpulse_collector.cli import cli, run
from ragpulse_collector.cli.tables import ago, cell, interval, measured, p_value, table
from ragpulse_collector.client import connect
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.words import called

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
RAW = re.compile(r"[{}]|\d{4}-\d\d-\d\dT|(?<![$\d])\d\.\d{5,}|  $|\brefusal\b|\d[_ ]s ago|_s\b(?! )", re.M)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (True, "yes"),
        (0.123456, "0.1235"),
        (12345.6, "12,346"),
        ("2026-11-26T14:09:28.349036Z", "2026-11-26 14:09:28 UTC"),
        ("2026-11-26T14:09:28+00:00", "2026-11-26 14:09:28 UTC"),
        ("2026-11-26 14:15:00", "2026-11-26 14:15 UTC"),
        ("on 2026-11-26T14:09:28Z", "on 2026-11-26T14:09:28Z"),
        ({"ok": 3, "skipped": 0}, "ok 3, skipped 0"),
        ({}, "-"),
        ([], "-"),
        (["ingest", "evaluate"], "ingest, evaluate"),
        ({"estimate": 0.9, "lo": 0.81234, "hi": 0.95, "n": 40, "se": 0.1}, "0.90 (0.81-0.95) n=40"),
        ({"value": None, "lo": None, "hi": None}, "-"),
        ("two\nlines\x1b[31m", "two lines [31m"),
    ],
)
def test_a_value_is_one_readable_line(value: Any, shown: str) -> None:
    """Numbers, times, estimates, lists and counts."""
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("point", "shown"),
    [
        ({"value": 196.4, "lo": -644.244, "hi": 1036.982, "n": 5}, "196 ± 841 n=5"),
        ({"value": 17, "n": 1700}, "17 n=1,700"),
        ({"value": 921.5, "lo": None, "hi": None, "n": 3}, "921.5 n=3"),
        ({"value": 0.5, "words": "0.50 (0.4 to 0.6) · 9 answers"}, "0.50 (0.4 to 0.6) · 9 answers"),
        (None, "-"),
    ],
)
def test_an_interval_is_written_out(point: dict[str, Any] | None, shown: str) -> None:
    """In words where the answer has them; never without its n."""
    assert interval(point) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.2, "0 seconds ago"), (1, "1 second ago"), (90, "1 minute ago"), (7300, "2 hours ago"), (298426, "3 days ago"),
     (-5, "in 5 seconds"), (-90_000, "in 1 day")],
)  # fmt: skip
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    """In the past and in the future."""
    assert ago(seconds) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("uptime_s", 23.94, ("uptime", "24 s")),
        ("oldest_s", 2.345, ("oldest", "2.3 s")),
        ("full_in_s", 300_000, ("full_in", "3 d 11 h")),
        ("new_per_s", 2.5612345, ("new_per_s", "2.561")),
        ("db.size_bytes", 12288, ("db.size_bytes", "12.3 kB")),
        ("received.spans", 1152, ("received.spans", "1,152")),
        ("full_in_s", None, ("full_in_s", "-")),
    ],
)
def test_a_figure_has_its_unit(name: str, value: Any, shown: tuple[str, str]) -> None:
    """By the end of its name."""
    assert measured(name, value) == shown


def test_p_values_and_names() -> None:
    """Small ones say only that; versions and prefixes of an evaluator do not hide it."""
    assert [p_value(p) for p in (3.165e-07, 0.0321)] == ["p < 0.0001", "p=0.032"]
    names = ("refusal", "quality:refusal", "refusal@v2", "quality:groundedness", "refusals", "prompt:v1")
    assert [called(name) for name in names] == [
        "answered", "answered", "answered@v2", "quality:groundedness", "refusals", "prompt:v1",
    ]  # fmt: skip


def test_a_long_value_does_not_push_the_others_away(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is cut, no line ends in blanks, and short rows stay short."""
    table("title", ("text", "n"), [("x" * 500, 1), ("short", 22)])
    title, head, first, second = capsys.readouterr().out.splitlines()
    assert (title, head) == ("title", "text    n")
    assert first == f"{'x' * 500}   1"
    assert second == "short  22"


def test_no_command_prints_what_is_for_programs(
    collector: Start, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that reports something, over a store with scores; `sql` and `--json` keep names and values."""
    monkeypatch.chdir(tmp_path)
    running = scored(collector)
    cases = [
        {"query": "q", "response": f"Paris {n}", "contexts": [f"Paris {n}"], "human": n % 2, "group": "g"}
        for n in range(4)
    ]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    capsys.readouterr()
    commands = {
        "metrics quality:refusal requests latency_p95": "answered ",
        "traces": "answered=1.00",
        f"show {1:032x}": "answered",
        "status": "uptime",
        "doctor": "newest span",
        "check -e refusal --min 0.5": "answered >= 0.5",
        "plan -e refusal --half-width 0.1": "answered",
        "replay -e refusal --yes": "answered done",
        "freeze --out base.jsonl": "questions in base.jsonl",
        "regress base.jsonl --since 7d": "answered, b - a",
        "regress base.jsonl --since 7d --format markdown": "| answered, b - a",
        "compare service:helpdesk service:helpdesk -e refusal": "verdict",
        "monitors": "name",
    }
    for command, told in commands.items():
        run([*command.split(), "--url", running.url])
        printed = capsys.readouterr().out
        assert told in printed, f"{command}: {printed}"
        assert not RAW.findall(printed), f"{command}: {RAW.findall(printed)} in {printed}"
    for command in (
        "evaluate cases.jsonl -e refusal -e groundedness",
        "calibrate -e groundedness --labels cases.jsonl",
    ):
        assert run(command.split()) == 0
        printed = capsys.readouterr().out
        assert not RAW.findall(printed), printed
    assert (
        run(["sql", "select evaluator, start_time from scores join traces using (trace_id)", "--url", running.url]) == 0
    )
    printed = capsys.readouterr().out
    assert "refusal" in printed
    assert "T" in printed
    assert "refusal" in connect(running.url).call("GET traces")["traces"][0]["scores"]


def test_an_old_span_has_an_age_in_words(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor`, in days."""
    running = collector()
    at = datetime.now(UTC) - timedelta(days=3, hours=11)
    send(running.url, rag_trace(1, start_ns=int(at.timestamp() * 1e9)))
    run(["doctor", "--url", running.url])
    assert "newest span 3 days ago" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("where", "told"),
    [("foo = 1", "there is no column 'foo'\n"), ("sevice = 'a'", "did you mean 'service'?"),
     ("latency = 1", "no column 'latency'")],
)  # fmt: skip
def test_a_nearest_name_is_near(where: str, told: str, collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a column; no name is proposed that has nothing in common with it."""
    assert run(["traces", "--where", where, "--url", collector().url]) == 1
    assert told in capsys.readouterr().err


def test_the_help_has_every_command_once_by_what_one_wants(capsys: pytest.CaptureFixture[str]) -> None:
    """The five of the first day come first."""
    assert run(["--help"]) == 0
    sections = re.split(r"\n\n([A-Z][a-z ]+):\n", capsys.readouterr().out.partition("\n\nFirst day:\n")[2])
    assert re.findall(r"^  ([a-z-]+)", sections[0], re.M) == ["demo", "serve", "run", "traces", "doctor"]
    assert sections[1::2] == ["Look", "Judge", "Replay and compare", "Run", "Data", "Advanced"]
    listed = [name for part in sections[::2] for name in re.findall(r"^  ([a-z-]+)", part, re.M)]
    assert sorted(listed) == sorted(cli.commands)


HOOK = '[[destination]]\nname = "ops"\nwebhook = "{}"\n'
REMOTE = '[judge]\nmodel = "openai/gpt-5-mini"\n'


@pytest.mark.parametrize(
    ("toml", "unpriced", "told"),
    [
        ("", None, "nothing (no judge is configured)"),
        (REMOTE, None, "questions, contexts and answers of sampled traces go to openai/gpt-5-mini at its provider, at"),
        (REMOTE, "openai/gpt-5-mini", "nothing (the judge openai/gpt-5-mini is not asked)"),
        ('[collector]\nroles = ["ingest"]\n' + REMOTE, None, "is not asked: this process has not the role evaluate)"),
        ('[judge]\nmodel = "http://127.0.0.1:9/v1#m"\n', None, "nothing (the judge http://127.0.0.1:9/v1#m is on this"),
        (HOOK.format("https://chat.example/x"), None, "names, values and links of alerts go to ops"),
        (HOOK.format("http://127.0.0.1:9/x"), None, "nothing (no judge is configured)"),
        ('[[destination]]\nname = "duty"\npagerduty = "key"\n', None, "alerts go to duty"),
        ('[[destination]]\nname = "us"\nemail = ["a@example.org"]\n', None, "alerts go to us"),
        (
            REMOTE + HOOK.format("https://chat.example/x"),
            None,
            "USD a day; names, values and links of alerts",
        ),
    ],
)
def test_what_leaves_is_what_can_leave(toml: str, unpriced: str | None, told: str, tmp_path: Path) -> None:
    """Texts to a judge that is asked, figures to destinations; nothing else, and no more."""
    file = tmp_path / "ragpulse.toml"
    file.write_text(toml)
    assert told in _leaving(load_settings(file), unpriced)
