"""Replay with evaluators that only the caller has: cases go out, results come back, no file is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import run
from ragpulse_collector.client import Client, ClientError, connect

if TYPE_CHECKING:
    from loopback import LoopbackModel

    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], "LoopbackModel"]
MINE = '''
import asyncio, pathlib
from ragpulse_evaluators import evaluator

seen = []

@evaluator(version="1")
async def has_towers(response: str) -> float:
    """1 where the answer names the tower."""
    seen.append(response)
    if len(seen) > 5 and pathlib.Path(__file__).with_name("stuck").exists():
        await asyncio.Event().wait()
    return float("Tower" in response)

@evaluator(version="1")
def broken(response: str) -> float:
    """Never works."""
    raise KeyError(response)
'''
DECLARED = {"evaluator": "has_towers", "version": "0123456789ab", "judge": None}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file with evaluators of one's own, unknown to the collector."""
    path = tmp_path / "my_evals.py"
    path.write_text(MINE)
    return path


def receiving(collector: Start, count: int, **options: Any) -> tuple[str, Client]:
    """A running collector with `count` decided traces, all but the first about the tower."""
    running = collector(**options)
    for number in range(count):
        send(running.url, rag_trace(number, response="The Tower is 330 m tall." if number else "No idea."))
    client = connect(running.url)
    until(client, "select 1 from decisions where evaluator = 'refusal'", count)
    return running.url, client


def scores(client: Client, evaluator: str = "has_towers") -> list[dict[str, Any]]:
    """What is stored of an evaluator."""
    return client.scores(f"evaluator = '{evaluator}'").rows()


def started(client: Client, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """An external replay with the cases it hands out."""
    one = client.call("POST replays", {"external": [DECLARED], "since": "1d", **more})["replays"][0]
    return one["run_id"], client.call(f"GET replays/{one['run_id']}/cases")["cases"]


def result(job: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A result as a caller sends it."""
    return {"job_id": job["job_id"], "result": {**DECLARED, "score": 1.0, "normalized": 1.0, **fields}}


def test_a_running_collector_replays_through_a_file_it_never_sees(
    collector: Start, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command evaluates, the collector stores; a second run finds everything done."""
    url, client = receiving(collector, 4)
    arguments = ["replay", "-e", "has_towers", "--load", str(mine), "--since", "1d", "--url", url, "--json"]
    assert run(arguments) == 0
    (shown,) = json.loads(capsys.readouterr().out)["replays"]
    assert (shown["status"], shown["ok"], shown["total"], shown["cost_usd"], shown["pi"]) == ("done", 4, 4, 0.0, 1.0)
    before = scores(client)
    assert sorted(row["score"] for row in before) == [0.0, 1.0, 1.0, 1.0]
    (revision,) = {row["label_version"] for row in before}
    assert len(revision) == 12, "the digest of the function's source"
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["replays"][0]["done"] == 4
    assert scores(client) == before


def test_killed_halfway_it_goes_on_with_what_is_left(collector: Start, mine: Path, tmp_path: Path) -> None:
    """SIGKILL after five results: the same command reuses them and ends with one verdict a unit."""
    url, client = receiving(collector, 12)
    (tmp_path / "stuck").touch()
    arguments = ["replay", "-e", "has_towers", "--load", str(mine), "--since", "1d", "--url", url]
    with subprocess.Popen([sys.executable, "-m", "ragpulse_collector", *arguments], stdout=subprocess.DEVNULL) as one:
        until(client, "select 1 from scores where evaluator = 'has_towers'", 5)
        one.kill()
    (tmp_path / "stuck").unlink()
    before = {row["trace_id"] for row in scores(client)}
    assert run(arguments) == 0
    after = scores(client)
    assert (len(before), len(after), len({row["trace_id"] for row in after})) == (5, 12, 12)
    states = [(one["status"], one["done"]) for one in client.call("GET replays")["replays"]]
    assert states == [("done", 12), ("cancelled", 5)]


def test_the_bill_counts_what_only_the_caller_can_price(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tokens are reckoned from the cases, an unknown price is null, and nothing is written."""
    url, client = receiving(collector, 3)
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    arguments = ["replay", "-e", "faithfulness", "--prompts", str(prompts), "--since", "1d", "--url", url, "--dry-run"]
    assert run([*arguments, "--judge", "openai/of-nobody-knows"]) == 0
    printed = capsys.readouterr().out
    assert "3 units, 0 already scored" in printed
    assert "; 0 tokens in" not in printed
    assert "cost unknown: the price of" in printed
    assert client.call("GET replays")["replays"] == []


def test_a_judge_of_the_caller_is_asked_by_the_caller(
    collector: Start, tmp_path: Path, loopback_model: StartModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """A judge on the caller's loopback scores through the caller's prompts folder, free."""
    model = loopback_model(lambda _: "YES")
    url, client = receiving(collector, 2)
    (tmp_path / "prompts").mkdir()
    arguments = ["replay", "-e", "faithfulness", "--prompts", str(tmp_path / "prompts"), "--since", "1d"]
    assert run([*arguments, "--judge", f"{model.url}#test", "--url", url, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["replays"]
    assert (shown["status"], shown["ok"]) == ("done", 2)
    assert len(model.asked) >= 2
    assert all("test" in row["judge"] for row in scores(client, "faithfulness"))


def test_a_failing_evaluator_ends_as_dead_letters(
    collector: Start, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake in the code is not tried again: each job ends with its first error, and so does the replay."""
    url, client = receiving(collector, 2)
    assert run(["replay", "-e", "broken", "--load", str(mine), "--since", "1d", "--url", url, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["replays"]
    assert (shown["status"], shown["error"]) == ("done", 2)
    assert sorted(row["attempt"] for row in scores(client, "broken")) == [3, 3]


def test_results_are_taken_once_and_the_cap_stops(collector: Start) -> None:
    """Sending twice changes nothing; the money spent is counted, and at the cap no more cases go out."""
    _, client = receiving(collector, 4)
    run_id, jobs = started(client, max_usd=0.05)
    paid = result(jobs[0], calls=[{"completion": "1", "cost_usd": 0.03}])
    assert client.call(f"POST replays/{run_id}/results", {"results": [paid]})["accepted"] == 1
    again = client.call(f"POST replays/{run_id}/results", {"results": [paid]})
    assert (again["accepted"], again["done"], again["status"], again["cost_usd"]) == (0, 1, "running", 0.03)
    assert again["eta_s"] == pytest.approx(3 / again["rate_per_s"])  # one page of results has one time
    more = result(jobs[1], calls=[{"completion": "1", "cost_usd": 0.03}])
    assert client.call(f"POST replays/{run_id}/results", {"results": [more]})["status"] == "capped"
    assert client.call(f"GET replays/{run_id}/cases")["cases"] == []
    assert client.call(f"POST replays/{run_id}/resume", {"max_usd": 1.0})["status"] == "running"
    assert [job["u"] for job in jobs] == sorted(job["u"] for job in jobs)
    assert len(client.call(f"GET replays/{run_id}/cases")["cases"]) == 2


PAID = """
from types import SimpleNamespace
from ragpulse_evaluators import Evaluator, JudgeCall
from ragpulse_evaluators.evaluator import Estimate

class Paid(Evaluator):
    name = "paid"
    judge = SimpleNamespace(id="openai/dear", model="openai/dear")

    def estimate(self, case):
        return Estimate(calls=1, input_tokens=1_000_000)

    def run(self, case):
        raise AssertionError("not reached")

    async def _attempt(self, case, calls):
        calls.append(JudgeCall(completion="1", cost_usd=2.0))
        return 1.0

paid = Paid()
"""


def test_the_caller_keeps_the_cap_before_it_asks(
    collector: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four units at 2 USD under a cap of 5: two are asked, the third never, and the run says why it stopped."""
    url, _ = receiving(collector, 4)
    (tmp_path / "paid.py").write_text(PAID)
    (tmp_path / "ragpulse.toml").write_text('[prices."openai/dear"]\ninput = 2.0\noutput = 2.0\n')
    monkeypatch.chdir(tmp_path)
    arguments = ["replay", "-e", "paid", "--load", "paid.py", "--since", "1d", "--url", url]
    assert run([*arguments, "--dry-run"]) == 0
    assert "4,000,000 tokens in, 0 out; about 8.0000 USD, at least 8.0000, at most 8.0328" in capsys.readouterr().out
    assert run([*arguments, "--yes", "--max-usd", "5", "--json"]) == 3
    (shown,) = json.loads(capsys.readouterr().out)["replays"]
    assert (shown["status"], shown["done"], shown["cost_usd"], shown["pi"]) == ("capped", 2, 4.0, 0.5)
    assert "the budget of 5 USD has no room" in shown["reason"]


def test_cancelling_stops_handing_out(collector: Start) -> None:
    """A cancelled replay has no cases; resumed it has them again."""
    _, client = receiving(collector, 2)
    run_id, jobs = started(client)
    assert client.call(f"POST replays/{run_id}/cancel")["status"] == "cancelled"
    assert client.call(f"GET replays/{run_id}/cases")["cases"] == []
    client.call(f"POST replays/{run_id}/resume")
    assert client.call(f"GET replays/{run_id}/cases")["cases"] == jobs


DEEP: Any = 0
for _ in range(900):
    DEEP = {"a": DEEP}


SPOILED: list[Callable[[dict[str, Any]], Any]] = [
    lambda good: "no list",
    lambda good: [7],
    lambda good: [good | {"job_id": "f" * 32}],
    lambda good: [good | {"job_id": "'; drop table"}],
    lambda good: [good | {"result": "ok"}],
    lambda good: [good, good],
    lambda good: [good] * 300,
    lambda good: [good, good | {"job_id": "e" * 32}],
    lambda good: [good | {"result": good["result"] | {"version": "other"}}],
    lambda good: [good | {"result": good["result"] | {"evaluator": "groundedness"}}],
    lambda good: [good | {"result": good["result"] | {"status": "fine"}}],
    lambda good: [good | {"result": good["result"] | {"normalized": 7}}],
    lambda good: [good | {"result": good["result"] | {"calls": [{"cost_usd": -1}]}}],
    lambda good: [good | {"result": good["result"] | {"parts": DEEP}}],
    lambda good: [good | {"elapsed_ms": "soon"}],
]


def test_hostile_results_are_refused_as_a_whole(collector: Start) -> None:
    """400 that names the mistake; nothing of the body is stored."""
    _, client = receiving(collector, 1)
    run_id, jobs = started(client)
    for spoil in SPOILED:
        with pytest.raises(ClientError, match="result") as refused:
            client.call(f"POST replays/{run_id}/results", {"results": spoil(result(jobs[0]))})
        assert refused.value.status == 400
    assert scores(client) == []


WRONG: list[Any] = [
    {"version": "1"},
    {"evaluator": "x\ny", "version": "1"},
    {"evaluator": "x", "version": ""},
    {"evaluator": "x", "version": "1", "needs": ["__class__"]},
    {"evaluator": "x", "version": "1", "judge": 7},
    "x",
]


def test_a_wrong_declaration_is_refused(collector: Start) -> None:
    """400 for what is no plain name; paths beside a right one stay refused too."""
    client = connect(collector().url)
    for wrong in [{"external": [one]} for one in WRONG] + [{"external": [DECLARED], "loads": ["x.py"]}]:
        with pytest.raises(ClientError) as refused:
            client.call("POST replays", wrong)
        assert refused.value.status == 400


def test_the_collectors_own_replays_take_no_results(collector: Start) -> None:
    """Results for a replay that the collector evaluates are refused, unknown replays are absent."""
    _, client = receiving(collector, 1)
    own = client.call("POST replays", {"evaluators": ["latency"], "since": "1d"})["replays"][0]["run_id"]
    with pytest.raises(ClientError, match="evaluated by the collector"):
        client.call(f"POST replays/{own}/results", {"results": []})
    with pytest.raises(ClientError, match="no replay"):
        client.call("GET replays/nope/cases")
