"""Gates of CI: what `ragpulse evaluate` exits with, and that every command says in one line why it cannot run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from local_servers import LocalServer

from ragpulse_collector.analysis.limits import Limit
from ragpulse_collector.cli import run

RIGHT = {"query": "q", "response": "Paris", "reference": "Paris", "contexts": ["Paris is the capital."]}
WRONG = {**RIGHT, "response": "Rome"}
BARE = {"query": "q", "response": "Paris"}
UNREACHABLE = "http://127.0.0.1:9/v1#m"


def written(folder: Path, cases: Sequence[dict[str, Any]], name: str = "cases.jsonl") -> str:
    """Write a file of cases."""
    path = folder / name
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return str(path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, where no ragpulse.toml lies."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("cases", "arguments", "status"),
    [
        ([RIGHT] * 30, ["--min", "exact_match=0.8"], 0),
        ([WRONG] * 30, ["--min", "exact_match=0.8"], 1),
        ([RIGHT] * 4, ["--min", "exact_match=0.8"], 3),
        ([RIGHT] * 15 + [WRONG] * 5, ["--min", "exact_match=0.8"], 3),
        ([BARE] * 30, ["--min", "exact_match=0.8"], 3),
        ([RIGHT] * 40 + [BARE] * 30, ["--min", "exact_match=0.8"], 3),
        ([RIGHT] * 40 + [BARE] * 1, ["--min", "exact_match=0.8"], 0),
        ([RIGHT] * 30, ["--min", "accuracy=0.8"], 0),
        ([WRONG] * 30, ["--min", "accuracy=0.8"], 1),
        ([RIGHT] * 20 + [BARE] * 20, ["--min", "accuracy=0.8"], 3),
        ([RIGHT] * 30, ["--min", "precision=0.8"], 3),
        ([RIGHT] * 30, ["--max", "fail_rate:exact_match=0.2"], 0),
        ([WRONG] * 30, ["--max", "fail_rate:exact_match=0.2"], 1),
        ([RIGHT] * 30, ["--max", "fail_rate:exact_match=0"], 3),
        ([RIGHT] * 30, ["--min", "pass_rate:exact_match=0.8", "--max", "exact_match=0.5"], 1),
        ([RIGHT] * 30, ["--min", "exact_match=0.8", "--min", "fuzzy_match=0.99"], 3),
        ([BARE] * 3, ["-e", "exact_match"], 3),
        ([WRONG] * 3, ["-e", "exact_match"], 0),
        ([RIGHT] * 30, ["--min", "regex=0.8", "--params", '{"regex": {"pattern": "P.*s"}}'], 0),
        ([RIGHT] * 30, ["--min", "regex=0.8", "--params", '{"regex": {"pattern": "R.*e"}}'], 1),
        ([RIGHT] * 3, ["--min", "faithfulness=0.5", "--judge", UNREACHABLE], 3),
        # It could not run.
        ([RIGHT] * 3, [], 2),
        ([RIGHT] * 3, ["--min", "latency=0.5", "--params", '{"latency": {"target": 1}}'], 3),
        ([{**RIGHT, "latency_s": 1.0}], ["--min", "latency=0.5"], 2),
        ([{**RIGHT, "latency_s": 1.0}], ["--max", "fail_rate:latency=0.5"], 2),
        ([RIGHT] * 30, ["--max", "fail_rate:accuracy=0.5", "--params", '{"accuracy": {"threshold": 0.5}}'], 2),
        ([RIGHT], ["--min", "exact_match"], 2),
        ([RIGHT], ["--min", "exact_match=high"], 2),
        ([RIGHT], ["--min", "exact_match=1.5"], 2),
        ([RIGHT], ["--max", "exact_match=nan"], 2),
        ([RIGHT], ["--min", "exact_mach=0.5"], 2),
        ([RIGHT], ["--min", "score:exact_match=0.5"], 2),
        ([RIGHT], ["-e", "regex", "--params", '{"regx": {}}'], 2),
        ([RIGHT], ["-e", "regex", "--params", '{"regex": {"patern": "a"}}'], 2),
        ([RIGHT], ["-e", "regex", "--params", "{broken"], 2),
        ([RIGHT], ["-e", "regex", "--params", '{"regex": 5}'], 2),
        ([RIGHT], ["-e", "regex", "--params", "[]"], 2),
        ([RIGHT], ["-e", "exact_match", "--language", "zh"], 2),
        ([RIGHT], ["-e", "exact_match", "--out", "nowhere/results.jsonl"], 2),
        ([RIGHT], ["-e", "exact_match", "--summary", "nowhere/summary.md"], 2),
        ([RIGHT], ["-e", "faithfulness", "--judge", "openai/nobody-knows-it", "--max-usd", "1"], 2),
        ([], ["-e", "exact_match"], 2),
        ([{"qestion": "q"}], ["-e", "exact_match"], 2),
    ],
)
def test_evaluate_is_a_gate(
    here: Path, cases: Any, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """0: every limit is kept; 1: one is not; 3: undecided; 2: it could not run, with one line."""
    assert run(["evaluate", written(here, cases), *arguments]) == status
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 if status == 2 else all(line.startswith("ragpulse: ") for line in errors)


def test_a_decision_is_told_written_and_answered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the terminal, as Markdown for the page of a run, and in the JSON."""
    limits = ["--min", "exact_match=0.8", "--max", "fail_rate:exact_match=0.3", "--summary", "summary.md"]
    path = written(here, [RIGHT] * 19 + [BARE])
    assert run(["evaluate", path, *limits]) == 3
    printed = capsys.readouterr()
    assert "exact_match >= 0.8: undecided   1.00 (0.83-1.00) · 19 of 20 answers" in printed.out
    assert "fail_rate of exact_match <= 0.3: below " in printed.out
    assert printed.err == "ragpulse: exact_match: 1 skipped of 20: missing: reference\n"
    assert (here / "summary.md").read_text().count("**undecided**") == 1
    assert run(["evaluate", path, *limits, "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)["exact_match"]
    assert [(each["measure"], each["verdict"], each["missing"]) for each in answer["limits"]] == [
        ("quality", "undecided", 1),
        ("fail_rate", "below", 1),
    ]


@pytest.fixture
def judge() -> Iterator[LocalServer]:
    """A judge that says yes."""
    server = LocalServer("llama.cpp", lambda prompt: "YES")
    yield server
    server.close()


def test_the_evaluators_of_the_configuration_are_there(here: Path, judge: LocalServer) -> None:
    """Those of ragpulse.toml by their names, with its judge; `--config` names another file."""
    entry = '[[evaluator]]\nname = "capital"\nuse = "regex"\npattern = "Par.*"\n'
    (here / "other.toml").write_text(entry)
    path = written(here, [RIGHT] * 30)
    assert run(["evaluate", path, "--min", "capital=0.8"]) == 2
    assert run(["evaluate", path, "--min", "capital=0.8", "--config", "other.toml"]) == 0
    (here / "ragpulse.toml").write_text(f'{entry}[judge]\nmodel = "{judge.url}#judge:8b"\n')
    assert run(["evaluate", path, "--min", "capital=0.8"]) == 0
    assert run(["evaluate", path, "--min", "faithfulness=0.8"]) == 0
    assert len(judge.requests) == 30


def test_a_cap_ends_the_questions_and_leaves_the_limit_open(
    here: Path, judge: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the cap left out may be anything; the paid evaluator may spend all of it, whatever else is asked for."""
    (here / "ragpulse.toml").write_text('[prices]\n"judge:8b" = { input = 1000.0, output = 1000.0 }\n')
    path = written(here, [RIGHT] * 20)
    limits = ["--min", "faithfulness=0.5", "--judge", f"{judge.url}#judge:8b", "-e", "exact_match"]
    assert run(["evaluate", path, *limits, "--max-usd", "8"]) == 3
    assert "BudgetExceeded" in capsys.readouterr().err
    assert run(["evaluate", path, *limits]) == 0


@pytest.mark.parametrize(
    ("low", "high", "least", "most"),
    [
        (0.8, 0.9, "above", "undecided"),
        (0.81, 0.9, "above", "above"),
        (0.7, 0.79, "below", "below"),
        (0.7, 0.9, "undecided", "undecided"),
        (0.8, 0.8, "above", "below"),
        (0.7, 0.8, "undecided", "below"),
        (None, None, "undecided", "undecided"),
    ],
)
def test_a_value_on_the_limit_keeps_it(low: float | None, high: float | None, least: str, most: str) -> None:
    """Of a minimum and of a maximum alike."""
    minimum, maximum = Limit(min=0.8), Limit(max=0.8)
    assert (minimum.verdict(low, high), maximum.verdict(low, high)) == (least, most)
    assert minimum.status(minimum.verdict(low, high)) == {"above": 0, "below": 1, "undecided": 3}[least]
    assert maximum.status(maximum.verdict(low, high)) == {"above": 1, "below": 0, "undecided": 3}[most]


MISTAKES: dict[str, tuple[list[str], str]] = {
    "unknown evaluator": (["-e", "faithfullness"], "did you mean 'faithfulness'?"),
    "unknown version": (["-e", "exact_match@9"], "not '9'"),
    "missing judge": (["-e", "faithfulness"], "needs a judge"),
    "missing litellm": (["-e", "faithfulness", "--judge", "openai/x"], "pip install 'ragpulse[judge]'"),
    "missing extra": (["-e", "bleu"], "pip install 'ragpulse[text]'"),
    "bad YAML": (["-e", "x", "--load", "bad.yaml"], "bad.yaml: while parsing"),
    "bad module": (["-e", "x", "--load", "bad.py"], "bad.py:1: SyntaxError"),
    "failing module": (["-e", "x", "--load", "failing.py"], "failing.py:2: ZeroDivisionError"),
    "ending module": (["-e", "x", "--load", "ending.py"], "ending.py:1: SystemExit"),
    "empty module": (["-e", "x", "--load", "empty.py"], "holds no evaluator"),
    "bad configuration": (["-e", "exact_match"], "ragpulse.toml:1: unknown key 'rul'"),
}
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "evaluate": (["cases.jsonl"], {"-e", "--judge", "--load"}),
    "calibrate": (["--labels", "cases.jsonl"], {"-e", "--judge", "--load"}),
    "align": (["--labels", "cases.jsonl"], {"-e", "--judge"}),
    "meta-evaluate": ([], {"-e", "--judge"}),
    "evaluators": ([], {"--load"}),
    "replay": (["--db", "own.duckdb"], {"-e", "--judge", "--load"}),
}
PAIRS = [
    (command, mistake)
    for command, (_, takes) in COMMANDS.items()
    for mistake, (options, _) in MISTAKES.items()
    if set(options[::2]) & {"--judge", "--load"} <= takes and ("-e" in takes or "--load" in options)
]


@pytest.mark.parametrize(("command", "mistake"), PAIRS)
def test_every_command_names_a_misconfiguration_in_one_line(
    here: Path, command: str, mistake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown evaluators, missing judges and extras, files that cannot be loaded: no traceback, no exit status 0."""
    for package in ("litellm", "sacrebleu"):
        monkeypatch.setitem(sys.modules, package, None)
    written(here, [{**RIGHT, "human": 1}])
    (here / "bad.yaml").write_text("name: [x\n  - : {")
    (here / "bad.py").write_text("def x(:\n")
    (here / "failing.py").write_text("\n1 / 0\n")
    (here / "ending.py").write_text("raise SystemExit(3)\n")
    (here / "empty.py").write_text("x = 1\n")
    if mistake == "bad configuration":
        (here / "ragpulse.toml").write_text("[[rul]]\nname = 'x'\n")
    (arguments, takes), (options, told) = COMMANDS[command], MISTAKES[mistake]
    given = [word for pair in zip(options[::2], options[1::2], strict=True) if pair[0] in takes for word in pair]
    assert run([command, *arguments, *given]) == (2 if command == "evaluate" else 1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ragpulse: ")
    assert told in line


@pytest.mark.parametrize("command", ["calibrate", "align", "meta-evaluate"])
def test_a_report_about_nothing_is_no_success(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that cannot be reached: these exited 0 with an empty report."""
    labels = written(here, [{**RIGHT, "query": str(n), "human": n % 2} for n in range(8)])
    given = ["-e", "grouse"] if command == "meta-evaluate" else ["-e", "faithfulness", "--labels", labels]
    assert run([command, *given, "--judge", UNREACHABLE]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "ConnectError" in line or "ragpulse evaluate" in line


def test_a_bar_is_for_a_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log of CI has none."""
    assert run(["evaluate", written(here, [RIGHT] * 30), "-e", "exact_match"]) == 0
    assert capsys.readouterr().err == ""
