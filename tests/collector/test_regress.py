"""The same questions before and after a change: frozen from stored traces, asked again, compared with intervals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.analysis.compare.regression import Answered, Pair, Score, gates, regression
from ragpulse_collector.cli import run
from ragpulse_collector.client import connect
from ragpulse_collector.refusals import NotFound

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
APP = """
import ragpulse

ragpulse.configure(service_name="helpdesk")

@ragpulse.retriever
def search(query: str) -> list[dict]:
    found = [{"id": "towers.md", "text": "The Eiffel Tower is 330 metres tall."}]
    more = {"id": "rivers.md", "text": "The Seine flows through Paris."}
    return found + [more] * ("0" not in query)

@ragpulse.rag
async def answer(question: str):
    found = search(question)
    if "broken" in question:
        raise RuntimeError("no answer")
    yield "The Eiffel Tower "
    yield "is 330 metres tall."
"""


def ask(collector: Collector, questions: list[str], *, first: int = 0, response: str = "330 metres.") -> None:
    """Store one trace a question, and wait until all are decided."""
    spans = (rag_trace(first + n, query=query, response=response) for n, query in enumerate(questions))
    send(collector.url, chain.from_iterable(spans))
    until(connect(collector.url), f"SELECT 1 FROM traces WHERE trace_id > '{first:032x}'", len(questions))


def questions(count: int) -> list[str]:
    """Different questions."""
    return [f"How tall is tower {number}?" for number in range(1, count + 1)]


def side(name: str, response: str | None, retrieved: str, *scores: Score, latency_ms: float = 100.0) -> Answered:
    """One question on one side; each letter is a retrieved id."""
    return Answered(
        f"q{name}", response, f"t{name}", "2026-11-01", list(retrieved), latency_ms=latency_ms, scores=scores
    )


def test_a_report_by_hand() -> None:
    """Means over the questions, paired differences b minus a, the most changed question first."""
    old, new = Score("groundedness", "1", None, 1.0), Score("groundedness", "1", None, 0.5)
    pairs = [
        Pair(side("1", "yes it is", "ab", old), side("1", "yes  it is", "ab", old, latency_ms=140.0), 1.0),
        Pair(side("2", "yes", "ab", old), side("2", "no", "bc", new, latency_ms=120.0), 0.0),
    ]
    report = regression(pairs, missing=1)
    means = [found and found.value for found in (report.jaccard, report.identical, report.similarity)]
    assert means == pytest.approx([(1 + 1 / 3) / 2, 0.5, 0.5])
    assert (report.n, report.missing, report.failed) == (2, 1, 0)
    assert gates(report, {}).verdict is None
    assert gates(regression(pairs, missing=1, silent=1), {"jaccard": 0.1}).verdict == "below"
    assert report.scores[0].difference.value == -0.25
    assert report.latency_ms is not None
    assert (report.latency_ms.a, report.latency_ms.difference.value) == (100.0, 30.0)
    (worst,) = report.worst
    assert (worst.query, worst.change, worst.lost, worst.gained) == ("q2", 1.0, ["a"], ["c"])
    assert worst.scores == {"groundedness": -0.5}


def test_scores_of_two_versions_are_never_paired() -> None:
    """A new version or judge of an evaluator is another series."""
    a, b = Score("faithfulness", "1", "m", 1.0), Score("faithfulness", "2", "m", 0.0)
    report = regression([Pair(side("1", "x", "a", a), side("1", "x", "a", b), 1.0)])
    assert report.scores == []
    with pytest.raises(NotFound, match="one version"):
        gates(report, {}, max_drop=0.1)


def test_unchanged_scores_leave_room_for_what_was_not_seen() -> None:
    """Twenty questions without a change cannot exclude a small one."""
    score = Score("groundedness", "1", None, 1.0)
    report = regression([Pair(side(str(n), "x", "a", score), side(str(n), "x", "a", score), 1.0) for n in range(20)])
    difference = report.scores[0].difference
    assert (difference.value, difference.lo) == (0.0, pytest.approx(-0.161, abs=0.001))
    assert gates(report, {"jaccard": 0.8}, max_drop=0.2).verdict == "above"
    undecided = gates(report, {"jaccard": 0.8}, max_drop=0.05)
    assert (undecided.verdict, undecided.gates[1].need) == ("undecided", 73)
    more = regression([Pair(side(str(n), "x", "a", score), side(str(n), "x", "a", score), 1.0) for n in range(73)])
    assert gates(more, {}, max_drop=0.05).verdict == "above"


def judged(passing: bool | None) -> Score:
    """A verdict; None: its evaluation failed."""
    return Score("judge", "1", "m", None if passing is None else float(passing))


@pytest.mark.parametrize(
    ("after", "verdict", "missing"),
    [
        # of 100 questions (good, bad, without a verdict) after; before, 80 were good
        ((95, 5, 0), "above", 0),
        ((76, 0, 24), "undecided", 24),  # the bad answers crash the evaluator: +0.26 on the others
        ((96, 2, 2), "above", 0),  # two cannot turn it
        ((10, 88, 2), "below", 0),
        ((0, 0, 100), "undecided", 100),  # no verdict at all is no reason to pass
    ],
)
@pytest.mark.parametrize("dropped", [False, True])
def test_missing_verdicts_decide_no_limit(
    after: tuple[int, int, int], verdict: str, missing: int, *, dropped: bool
) -> None:
    """`--max-drop` passes a version only if it would with each missing verdict against it."""
    good, bad, lost = after
    verdicts = [Score("judge", None, None, None) if dropped else judged(None)] * lost
    verdicts += [judged(True)] * good + [judged(False)] * bad
    old = [judged(number < 80) for number in range(100)]
    pairs = [
        Pair(side(str(n), "x", "a", a), side(str(n), "y", "a", b), 1.0)
        for n, (a, b) in enumerate(zip(old, verdicts, strict=True))
    ]
    decided = gates(regression(pairs), {}, max_drop=0.05)
    assert (decided.verdict, decided.gates[0].verdict, decided.gates[0].missing) == (verdict, verdict, missing)
    scored = decided.scores[0].missing if decided.scores else decided.unscored["judge"]
    assert scored == lost


CRASHING = """
from ragpulse_evaluators import evaluator

@evaluator(name="polite", version="1")
def polite(response: str) -> float:
    if "rude" in response:
        raise ValueError("no words for this")
    return 1.0
"""


def test_an_evaluator_that_crashes_on_bad_answers_passes_no_version(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the store: failed evaluations are read with the scores, and the report says how many there are."""
    (tmp_path / "polite.py").write_text(CRASHING)
    settings = {"evaluators": {"files": [str(tmp_path / "polite.py")]}}
    running, path = collector(settings=settings, rules=[("polite", "polite", 1.0)]), tmp_path / "queries.jsonl"
    ask(running, questions(40))
    client = connect(running.url)
    until(client, "SELECT 1 FROM scores WHERE evaluator = 'polite' AND status = 'ok'", 40)
    frozen(running, path)
    ask(running, questions(40)[:20], first=100)
    ask(running, questions(40)[20:], first=200, response="a rude answer")
    until(client, "SELECT 1 FROM scores WHERE evaluator = 'polite' AND status = 'error'", 20)
    until(client, "SELECT 1 FROM scores WHERE evaluator = 'polite' AND status = 'ok'", 60)
    capsys.readouterr()
    assert run(["regress", str(path), "--url", running.url, "--max-drop", "0.2"]) != 0
    assert "20 missing verdicts" in capsys.readouterr().out


def test_a_lost_retriever_is_no_overlap_and_none_at_all_is_not_measured() -> None:
    """None on one side is an empty list; None on both says nothing."""
    bare = Answered("q", "x", "t", "2026-11-01", None)
    overlap = regression([Pair(side("1", "x", "a"), bare, 1.0)]).jaccard
    assert [overlap and overlap.value] == [0.0]
    report = regression([Pair(bare, bare, 1.0)])
    assert report.jaccard is None
    with pytest.raises(NotFound, match="jaccard"):
        gates(report, {"jaccard": 0.5})


def frozen(collector: Collector, path: Path, *options: str) -> list[dict[str, Any]]:
    """What `ragpulse freeze` wrote."""
    assert run(["freeze", "-o", str(path), "--url", collector.url, *options]) == 0
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_freeze_keeps_each_question_once(collector: Start, tmp_path: Path) -> None:
    """The newest answered trace of each question, with what was retrieved in rank order and its scores."""
    running = collector()
    ask(running, ["Where?", "Why?", "Where?"])
    send(running.url, rag_trace(9, query="Broken?", error=True))
    until(connect(running.url), "select 1 from scores where status = 'ok' having count(*) >= 6")
    lines = frozen(running, tmp_path / "queries.jsonl")
    assert [(one["query"], one["trace_id"]) for one in lines] == [("Where?", f"{3:032x}"), ("Why?", f"{2:032x}")]
    assert lines[0]["retrieved"] == ["towers.md", "rivers.md"]
    assert "groundedness" in {score["evaluator"] for score in lines[0]["scores"]}
    assert len(frozen(running, tmp_path / "few.jsonl", "--where", "query = 'Why?'")) == 1


def test_stored_traces_of_the_same_questions_are_compared(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --app the newest traces count; limits are decided on the interval: 0, 1, 3, and 2 where nothing is."""
    running, path = collector(), tmp_path / "queries.jsonl"
    ask(running, questions(25))
    frozen(running, path)
    regress = ["regress", str(path), "--url", running.url]
    assert run(regress) == 2
    assert "name --app" in capsys.readouterr().err
    ask(running, questions(25), first=100, response="It has 330 metres.")
    assert run([*regress, "--min-jaccard", "0.8", "--min-rbo", "0.8"]) == 0
    assert run([*regress, "--min-jaccard", "0.95"]) == 3
    assert run([*regress, "--min-jaccard", "0.8", "--min-identical", "0.5"]) == 1
    capsys.readouterr()
    assert run([*regress, "--where", "prompt_version = 'v7'", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["n"], report["identical"]["value"], report["jaccard"]["value"]) == (25, 0.0, 1.0)
    assert report["similarity"]["value"] == pytest.approx(2 / 3)
    assert report["worst"][0]["response_b"] == "It has 330 metres."
    client = connect(running.url)
    kept = client.call("GET runs", {"purpose": "check"})["runs"]
    assert [(one["state"], one["total"], one["population"]["dataset"]) for one in kept] == [("done", 25, str(path))] * 4
    assert client.call(kept[0]["result"]) == report


def test_a_dataset_is_frozen_and_compared(collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same questions as in a file; of a dataset made from traces, what they retrieved is read from the store."""
    running = collector()
    ask(running, questions(6))
    assert run(["freeze", "--dataset", "asked often", "--url", running.url]) == 0
    client = connect(running.url)
    client.call("POST datasets/page", {"trace_ids": [f"{number:032x}" for number in range(1, 7)]})
    items = client.call("GET datasets/page")["items"]
    without_zone = [{**item, "at": item["at"].removesuffix("Z")} for item in items]  # as version 0.1 stored them
    client.call("POST datasets/mixed", {"items": [*items[:3], *without_zone[3:]]})
    ask(running, questions(6), first=100, response="It has 330 metres.")
    capsys.readouterr()
    for name in ("asked often", "page", "mixed"):
        assert run(["regress", name, "--url", running.url, "--format", "json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["n"], report["identical"]["value"], report["jaccard"]["value"]) == (6, 0.0, 1.0)
    assert run(["regress", "nothing", "--url", running.url]) == 2
    assert "nothing is neither a file nor a dataset" in capsys.readouterr().err


def test_a_closed_file_is_compared_too(collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both verbs read; a running collector is needed only for --app."""
    running, path, db = collector(), tmp_path / "queries.jsonl", str(tmp_path / "ragpulse.duckdb")
    ask(running, questions(3))
    running.stop()
    assert run(["freeze", "-o", str(path), "--db", db]) == 0
    assert run(["regress", str(path), "--db", db]) == 2
    assert run(["regress", str(path), "--db", db, "--app", "app:answer"]) == 2
    assert "running collector" in capsys.readouterr().err


def test_the_application_is_asked_again(collector: Start, tmp_path: Path) -> None:
    """An async generator in this process: its spans are stored, scored and compared; a failure is a lost answer."""
    running, path = collector(), tmp_path / "queries.jsonl"
    ask(running, [*questions(10), "Is it broken?"], response="The Eiffel Tower is 330 metres tall.")
    until(connect(running.url), "select 1 from scores where status = 'ok' having count(*) >= 22")
    frozen(running, path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    arguments = ["regress", str(path), "--app", "app:answer", "--url", running.url, "--format", "json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAGPULSE_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, "-m", "ragpulse_collector", *arguments, "--max-drop", "0.9"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # the application failed on a question
    assert "RuntimeError: no answer" in done.stderr
    report = json.loads(done.stdout)
    assert (report["n"], report["missing"], report["failed"]) == (11, 0, 1)
    assert report["jaccard"]["value"] == pytest.approx((10 + 0.5) / 11)  # tower 10 lost a document
    assert "groundedness" in {one["evaluator"] for one in report["scores"]}
    assert report["worst"][0]["query"] == "Is it broken?"
    environments = connect(running.url).sql("select distinct environment from traces where query like '%10?'").rows()
    assert {"environment": "regress"} in environments


def test_markdown_holds_tables_and_verdicts(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a pull request: a bar in a question does not break the table."""
    running, path = collector(), tmp_path / "queries.jsonl"
    ask(running, ["this | that"])
    until(connect(running.url), "select 1 from traces where decided")
    frozen(running, path)
    ask(running, ["this | that"], first=100, response="Other.")
    until(connect(running.url), "select 1 from traces where decided having count(*) = 2")
    capsys.readouterr()
    assert run(["regress", str(path), "--url", running.url, "--format", "markdown", "--min-jaccard", "0.5"]) == 3
    printed = capsys.readouterr().out
    assert "| retrieved, Jaccard | 1.00 (0.21-1.00) n=1 |" in printed
    assert "| cost, USD per 1,000, b - a | 0 n=1 | 0.065 | 0.065 |" in printed
    assert "this \\| that" in printed
    assert printed.startswith("1 questions compared\n")
    assert "- jaccard >= 0.5: undecided (1 questions; about " in printed


@pytest.mark.parametrize("app", ["nocolon", "absent_module:answer"])
def test_what_cannot_run_exits_2(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A wrong --app, or a file of something else, is one line with the fix."""
    for name in ("RAGPULSE_URL", "RAGPULSE_ENDPOINT", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.setenv(name, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "queries.jsonl"
    line: dict[str, Any] = {
        "query": "q",
        "response": "r",
        "trace_id": "t",
        "at": "2026-11-01",
        "retrieved": None,
        "scores": [],
    }
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert run(["regress", str(path), "--app", app]) == 2
    assert "--app" in capsys.readouterr().err
    path.write_text('{"query": "q"}\n', encoding="utf-8")
    assert run(["regress", str(path), "--app", app]) == 2
    assert "queries.jsonl:1" in capsys.readouterr().err
