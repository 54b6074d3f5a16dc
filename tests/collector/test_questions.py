"""`ragpulse generate-questions`: a test set from stored contexts, with a bill, a cap and what became of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import LoopbackModel
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import run
from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]


def written(prompt: str) -> str:
    """One question, its number taken from the passage; none about a passage without a number."""
    number = prompt.partition("passage number ")[2].partition(" ")[0]
    return json.dumps({"questions": [{"question": f"Which passage is {number}?", "reference": number}]})


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    """A judge that writes 1,000 tokens for each question."""
    one = LoopbackModel(written, writes=1_000)
    yield one
    one.close()


@pytest.fixture
def arguments(collector: Start, model: LoopbackModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command over six stored traces with two contexts each; the judge costs 10 USD for a million tokens out."""
    url = collector().url
    for number in range(6):
        own = (f"{number}.md", f"This is passage number {number} of six.")
        send(url, rag_trace(number, documents=[own, ("all.md", "The same words stand in every trace.")]))
    until(connect(url), "select distinct trace_id from contexts", 6)
    (tmp_path / "ragpulse.toml").write_text(
        f'[judge]\nmodel = "{model.url_at("127.1")}#paid"\nmax_tokens = 2000\n[prices.paid]\ninput = 0\noutput = 10.0\n'
    )
    monkeypatch.chdir(tmp_path)
    return ["generate-questions", "--since", "1d", "--url", url, "--concurrency", "1"]


def test_questions_are_written_from_stored_contexts(
    arguments: list[str], model: LoopbackModel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The bill comes first; equal contexts are asked about once; the file is a data set that `evaluate` reads."""
    assert run([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("7 contexts; ")
    assert "about 0.0084 USD, at least 0.0000, at most 0.2800" in told
    assert run(arguments) == 1
    assert "--yes" in capsys.readouterr().err
    assert not model.asked
    assert run([*arguments, "--yes"]) == 0
    told = capsys.readouterr().out
    assert "6 questions in questions.jsonl; 0.0700 USD" in told
    assert "1 skipped: nothing to ask" in told
    cases = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]
    asked = {case["reference"]: case["contexts"][0]["text"] for case in cases}
    assert asked["3"] == "This is passage number 3 of six."
    assert run(["evaluate", "questions.jsonl", "-e", "exact_match", "--json"]) == 3
    assert "6 skipped of 6: missing: response" in capsys.readouterr().err


def test_a_sample_is_the_same_for_the_same_seed(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`--count` takes a random sample of the contexts; `--where` chooses the traces."""
    texts = []
    for out in ("a.jsonl", "b.jsonl"):
        assert run([*arguments, "--yes", "--count", "3", "--out", out]) == 0
        texts.append(sorted((tmp_path / out).read_text().splitlines()))
    assert texts[0] == texts[1]
    assert len(texts[0]) == 3
    capsys.readouterr()
    assert run([*arguments, "--where", "service = 'nobody'"]) == 1
    assert "no context with text" in capsys.readouterr().err


def test_its_cap_is_hard(arguments: list[str], model: LoopbackModel, capsys: pytest.CaptureFixture[str]) -> None:
    """At a cent a question a cap of three cents asks two: the third might have cost two; exit 3 says so."""
    assert run([*arguments, "--yes", "--max-usd", "0.035"]) == 3
    captured = capsys.readouterr()
    assert 0.0 < sum(written for _, written in model.billed) * 1e-5 <= 0.035
    assert "2 questions in questions.jsonl; 0.0200 USD" in captured.out
    assert "--max-usd" in captured.err


def test_a_judge_without_a_price_is_refused_under_a_cap(
    arguments: list[str], model: LoopbackModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown price is named with the fix, and nothing is asked."""
    unknown = [*arguments, "--judge", f"{model.url_at('127.1')}#unknown", "--yes", "--max-usd", "1"]
    assert run(unknown) == 1
    assert "the price of unknown is unknown: add it to [prices]" in capsys.readouterr().err
    assert not model.asked


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ('{"answer": "no", "response": "yes"}', "'answer' and 'response' both mean 'response' and differ"),
        ('{"respnse": "yes"}', "a case has no field 'respnse'; did you mean 'response'?"),
        ('{"response": "yes", "tenant": "x"}', "a case has no field 'tenant'; known are"),
    ],
)
def test_unknown_columns_of_a_data_set_are_refused(
    row: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column that would be lost silently is named, with our name for it."""
    path = tmp_path / "cases.jsonl"
    path.write_text(row + "\n")
    assert run(["evaluate", str(path), "-e", "exact_match"]) == 2
    assert f"{path}:1: {hint}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["calibrate", "align"])
def test_a_line_without_a_persons_score_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands say what each line needs."""
    path = tmp_path / "cases.jsonl"
    path.write_text('{"response": "yes"}\n')
    assert run([command, "-e", "exact_match", "--labels", str(path)]) == 1
    assert f"{path}: every line needs `human`" in capsys.readouterr().err
