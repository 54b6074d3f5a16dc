"""`ragpulse judge check` tells judges apart: a good, a lenient, a random and a position-biased one."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from labelled_answers import GOOD, PAIRS, Truth, choice, judged, truth
from local_servers import LocalServer
from loopback import LoopbackModel
from served import Served
from stored_units import create_empty, stored_reports
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.app import Collector
from ragpulse_collector.cli import run
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.evaluation.judge_checks import JudgeChecks
from ragpulse_collector.settings import Settings
from ragpulse_evaluators.meta.pairs import detection
from ragpulse_evaluators.result import EvaluationResult


def guessing(seed: int = 1) -> Truth:
    """Yes or no by chance."""
    dice = random.Random(seed)
    return lambda _: dice.random() < 0.5


GUESS = "no better than guessing"
JUDGES: dict[str, tuple[Truth, Callable[[str], str], list[str]]] = {
    "good": (truth, choice, [GOOD]),
    "lenient": (lambda _: True, choice, [f"{GUESS} (lenient: it lets most wrong answers pass)"]),
    "random": (guessing(), lambda _: random.Random(_).choice("12"), [GUESS, "unsteady: two runs disagree on"]),
    "biased": (truth, lambda _: "1", [GOOD, "biased by position: it prefers the first answer"]),
}


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LoopbackModel]]:
    """Start a judge; the working folder is empty."""
    monkeypatch.chdir(tmp_path)
    started: list[LoopbackModel] = []

    def start(verdict: Truth = truth, winner: Callable[[str], str] = choice, **options: Any) -> LoopbackModel:
        started.append(LoopbackModel(lambda prompt: judged(prompt, verdict, winner), **options))
        return started[-1]

    yield start
    for model in started:
        model.close()


def checked(model: LoopbackModel, *arguments: str, code: int = 0) -> None:
    """Run the check."""
    assert run(["judge", "check", "--judge", f"{model.url}#m", "--json", *arguments]) == code


@pytest.mark.parametrize("kind", JUDGES)
def test_judges_are_told_apart(
    serve: Callable[..., LoopbackModel], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind by its verdict, and the figures behind it."""
    verdict, winner, expected = JUDGES[kind]
    model = serve(verdict, winner)
    checked(model)
    report = json.loads(capsys.readouterr().out)
    found = report["verdicts"]
    assert len(found) == len(expected), found
    assert all(verdict.startswith(start) for verdict, start in zip(found, expected, strict=True)), found
    shares = [report["detection"][name]["estimate"] for name in ("specificity", "sensitivity")]
    if verdict is truth:
        assert shares == [1.0, 1.0]
        assert report["detection"]["kappa"] == 1.0
    if kind == "lenient":
        assert shares == [1.0, 0.0]
    assert report["questions"] < 500
    (stored,) = stored_reports("ragpulse.duckdb")
    assert stored["verdicts"] == found


def test_a_second_run_asks_nothing_again(
    serve: Callable[..., LoopbackModel], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that the server broke off goes on: only what has no recorded answer is asked."""
    model = serve()
    answer, left = model.answer, [100]

    def dies(prompt: str) -> str | int | bytes | None:
        left[0] -= 1
        return answer(prompt) if left[0] > 0 else 401

    model.answer = dies
    checked(model)
    broken = json.loads(capsys.readouterr().out)
    assert broken["detection"]["unread"] > 0
    assert "hold no verdict" in broken["verdicts"][-1]
    before, model.answer = len(model.asked), answer
    checked(model)
    whole = json.loads(capsys.readouterr().out)
    assert whole["verdicts"] == [GOOD]
    assert len(model.asked) - before < whole["questions"] - 90
    before = len(model.asked)
    checked(model)
    assert len(model.asked) - before <= 2  # what the server supports is asked anew
    assert len(stored_reports("ragpulse.duckdb")) == 3


def test_what_the_server_supports_costs_and_takes(
    serve: Callable[..., LoopbackModel], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the prices of the configuration; replies of loopback name no logprobs."""
    model = serve()
    Path("ragpulse.toml").write_text(f'[judge]\nmodel = "{model.url}#m"\n[prices."m"]\ninput = 10\noutput = 10\n')
    assert run(["judge", "check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["server"]["structured"] == "json_schema"
    assert report["server"]["several_samples"] is True
    assert report["server"]["logprobs"] is False
    assert report["usd_per_1000_answers"] == pytest.approx(1000 * 125 * 10 / 1e6)
    assert 0 < report["latency_s"] <= report["latency_p95_s"]
    assert report["waits"] == 0


def test_a_cap_stops_it_and_a_larger_one_goes_on(
    serve: Callable[..., LoopbackModel], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3, nothing is stored, and what was paid for is not paid again."""
    model = serve()
    Path("ragpulse.toml").write_text(
        f'[judge]\nmodel = "{model.url}#m"\nmax_tokens = 50\n[prices."m"]\ninput = 10\noutput = 10\n'
    )
    assert run(["judge", "check", "--json", "--max-usd", "0.15"]) == 3
    assert "a larger --max-usd goes on" in capsys.readouterr().err
    asked = len(model.asked)
    assert 0 < asked < 200
    assert stored_reports("ragpulse.duckdb") == []
    assert run(["judge", "check", "--json", "--max-usd", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == [GOOD]
    assert len(model.asked) < 500


def test_the_collector_answers_with_the_checks_of_its_judge(
    serve: Callable[..., LoopbackModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newest first, with the id of the configured judge; the command that it names sends it the report."""
    lenient, good = serve(lambda _: True), serve()
    model = f"{good.url}#m"
    settings = (
        Settings().with_options("judge", {"model": model}).with_options("collector", {"db": "own.duckdb", "port": 0})
    )
    create_empty(Path("own.duckdb"))
    collector = Collector(settings)
    collector.start()
    monkeypatch.setenv("RAGPULSE_URL", collector.url)

    def answer() -> JudgeChecks:
        found: JudgeChecks = asyncio.run(collector.components.operations.call("GET judge/checks", {}))
        return found

    def page() -> str:
        return str(urlopen(f"{collector.url}/evaluators").read().decode())

    assert answer().checks == []
    assert "This judge was never checked" in page()
    program, *command = shlex.split(answer().command or "")
    assert program == "ragpulse"
    assert run(command) == 0
    assert run(["judge", "check", "--judge", f"{lenient.url}#m", "--db", "own.duckdb", "--cache", "other.jsonl"]) == 0
    newest, oldest = answer().checks
    assert newest.at > oldest.at
    assert oldest.check.judge == answer().judge
    assert oldest.check.verdicts == (GOOD,)
    assert newest.check.judge != answer().judge
    assert newest.check.verdicts[0].startswith(GUESS)
    assert f"The judge is {GOOD}." in page()
    client = connect(collector.url)
    listed, checks = client.call("GET runs", {"purpose": "check"})["runs"], client.call("GET judge/checks")["checks"]
    assert checks[1]["at"].endswith("Z")
    assert [(run["state"], run["by"], run["done"]) for run in listed] == [
        ("done", "caller", run["total"]) for run in listed
    ]
    assert client.call(f"GET runs/{listed[1]['run_id']}/result") == checks[1]["check"]
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    for changed, message in (
        ({"judge": "other", "report": checks[1]["check"]}, "not the judge"),
        ({"judge": "m", "report": {"judge": "m"}}, "report: not what"),
        ({"dataset": "base", "report": {"x": deep}}, "report: recursion"),
        ({"dataset": "base", "report": {}, "evaluators": []}, "evaluators"),
        ({"dataset": "base", "report": {}, "total": 2**70}, "total"),
    ):
        with pytest.raises(ClientError, match=message):
            client.call("POST runs", {"evaluators": ["faithfulness"], "total": 1} | changed)
    collector.stop()
    former = [
        re.sub(r'"value": [^,]+, ', "", json.dumps({"at": check["at"].rstrip("Z"), "check": check["check"]}))
        for check in checks
    ]
    Path("former.duckdb.judge-checks.jsonl").write_text("\n".join([*former, "{}", '{"at": "cut o']))
    collector = Collector(settings.with_options("collector", {"db": "former.duckdb"}))
    collector.start()
    assert [check.check for check in answer().checks] == [newest.check, oldest.check]
    collector.stop()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "judge check needs a judge: name one with --judge or [judge] model"),
        (["--judge", "http://127.0.0.1:9/v1#m"], "m at 127.0.0.1:9/v1: ConnectError"),
        (["--judge", "http://127.1:9/v1#m", "--max-usd", "1"], "m is unknown: add it to [prices], so that --max-usd"),
    ],
)
def test_without_a_judge_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], expected: str,
) -> None:  # fmt: skip
    """One line, exit 1."""
    monkeypatch.chdir(tmp_path)
    assert run(["judge", "check", *arguments]) == 1
    assert expected in capsys.readouterr().err


def test_pairs_are_what_they_claim() -> None:
    """Ten domains of six; every answer once; both answers of a pair are about as long."""
    domains = [pair.domain for pair in PAIRS]
    assert {domains.count(domain) for domain in domains} == {6}
    assert len({*domains}) == 10
    answers = [answer for pair in PAIRS for answer in (pair.right, pair.wrong)]
    assert len({*answers}) == 120
    assert all(abs(len(pair.right) - len(pair.wrong)) <= 12 for pair in PAIRS)
    assert abs(sum(len(pair.right) - len(pair.wrong) for pair in PAIRS)) < 60  # length tells nothing


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        (60, 0, "better than guessing"),
        (60, 60, "no better than guessing (lenient: it lets most wrong answers pass)"),
        (60, 40, "lenient: it lets most wrong answers pass"),
        (0, 0, "no better than guessing (strict: it fails most right answers)"),
        (20, 2, "strict: it fails most right answers"),
        (31, 29, "no better than guessing"),
        (0, 60, "no better than guessing"),
        (20, 40, "no better than guessing"),
    ],
)
def test_the_verdict_in_words(right: int, wrong: int, expected: str) -> None:
    """By how many of sixty right and of sixty wrong answers pass."""
    passing = [n < right for n in range(60)] + [n < wrong for n in range(60)]
    results = [EvaluationResult(passing=value) for value in passing]
    assert detection(results, [True] * 60 + [False] * 60).verdict == expected


def test_answers_without_a_verdict_are_counted_apart() -> None:
    """Unclear and failed ones are no mistakes and no hits."""
    verdicts = (True, True, None, False, None, False)
    results = [EvaluationResult(passing=passing) for passing in verdicts]
    found = detection(results, [True, True, True, False, False, True])
    assert (found.n, found.unread) == (6, 2)
    assert found.sensitivity is not None
    assert found.sensitivity.estimate == 1.0
    assert found.specificity is not None
    assert found.specificity.estimate == pytest.approx(2 / 3)
    assert detection([EvaluationResult(passing=None)], [True]).verdict == "not tested: no verdict could be read"


def test_serve_asks_ollama_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ragpulse serve --judge ollama/NAME`: the first score of a judge needs nothing else."""
    server = LocalServer("ollama", lambda prompt: '{"reason": "stated", "verdict": "YES"}')
    monkeypatch.setenv("OLLAMA_API_BASE", server.url.removesuffix("/v1"))
    config = tmp_path / "ragpulse.toml"
    rule = '[[rule]]\nname = "j"\nevaluators = ["faithfulness"]\nrate = 1.0\n'
    config.write_text(f"offline = false\n[collector]\nsettle_s = 0\n{rule}")
    arguments = ("--judge", f"ollama/{server.model}", "--config", str(config), "--no-grpc")
    with Served(tmp_path / "served.duckdb", *arguments) as served:
        assert f"the judge ollama/{server.model} is on this computer" in served.output
        send(served.url, rag_trace(1))
        asked = connect(served.url)
        (row,) = eventually(lambda: asked.sql("SELECT status, judge FROM scores").rows())
    server.close()
    assert row["status"] == "ok"
    assert str(row["judge"]).startswith("judge:8b")
    assert server.keys == [None] * len(server.keys)
