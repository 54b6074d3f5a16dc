"""`POST judge/check`: a collector checks its judge in the background, within the day's budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from labelled_answers import GOOD, choice, judged, truth
from loopback import LoopbackModel
from stored_units import create_empty, stored_reports
from waiting import eventually

from ragpulse_collector.app import Collector
from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.configuration import load_settings

PRICED = '[prices."m"]\ninput = 10\noutput = 10\n'
Start = Callable[..., Client]


class Bench:
    """A judge on loopback, which holds its replies while `open` is not set, and collectors that ask it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.model = LoopbackModel(self._answer)
        self.collectors: list[Collector] = []

    def _answer(self, prompt: str) -> str:
        self.open.wait(60)
        return judged(prompt, truth, choice)

    def serve(self, more: str = "", *, judge: str | None = None, name: str = "", host: str = "127.0.0.1") -> Client:
        """Start a collector with this judge and further lines of configuration."""
        chosen = f"{self.model.url_at(host)}#m" if judge is None else judge
        table = f'[judge]\nmodel = "{chosen}"\nmax_tokens = 50\nname = "house"\n{name}' if chosen else ""
        Path("ragpulse.toml").write_text(f'[collector]\ndb = "own.duckdb"\nport = 0\ngrpc = false\n{table}{more}')
        create_empty(Path("own.duckdb"))
        self.collectors.append(Collector(load_settings(Path("ragpulse.toml"))))
        self.collectors[-1].start()
        return connect(self.collectors[-1].url)

    def close(self) -> None:
        """Stop all."""
        self.open.set()
        for collector in self.collectors:
            collector.stop()
        self.model.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The working folder is empty."""
    monkeypatch.chdir(tmp_path)
    made = Bench()
    yield made
    made.close()


def ended(client: Client) -> dict[str, Any]:
    """What `GET judge/checks` says once the check has ended."""
    eventually(lambda: not client.call("GET judge/checks")["started"]["running"])
    found: dict[str, Any] = client.call("GET judge/checks")
    return found


def spent(client: Client) -> float:
    """USD of the day's judge budget that are gone."""
    return float(client.call("GET status")["judge"]["spent_today_usd"])


def money(client: Client) -> float:
    """USD of the check."""
    (check,) = client.call("GET runs", {"purpose": "check"})["runs"]
    return float(check["cost_usd"])


def refusal(client: Client, **params: Any) -> ClientError:
    """The refusal of a check."""
    with pytest.raises(ClientError) as refused:
        client.call("POST judge/check", params)
    return refused.value


def test_a_check_runs_in_the_background(bench: Bench) -> None:
    """It answers at once, says how far it is, admits no second one, and stores its report beside the database."""
    client = bench.serve()
    assert client.call("GET judge/checks")["started"] is None
    bench.open.clear()
    begun = client.call("POST judge/check")
    assert 350 < begun["questions"] < 500
    assert begun["cost_usd"] == 0
    started = client.call("GET judge/checks")["started"]
    assert (started["running"], started["done"], started["judge"]) == (True, 0, begun["judge"])
    second = refusal(client)
    assert (second.status, "is running" in str(second)) == (409, True)
    (check,) = client.call("GET runs", {"purpose": "check"})["runs"]
    assert client.call(f"POST replays/{check['run_id']}/cancel")["status"] == "cancelled"
    assert client.call("GET judge/checks")["started"]["running"] is False
    assert client.call("POST judge/check") == begun, "it goes on"
    bench.open.set()
    found = ended(client)
    assert found["started"]["done"] == found["started"]["n"] > 300
    assert found["started"]["error"] is None
    (stored,) = found["checks"]
    assert stored["check"]["verdicts"] == [GOOD]
    assert stored["check"]["judge"] == begun["judge"] == found["judge"]
    assert stored["check"]["questions"] == begun["questions"]
    assert not list(Path().glob("*judge*"))
    before = len(bench.model.asked)
    client.call("POST judge/check", {"judge": "house"})
    assert len(ended(client)["checks"]) == 2
    assert len(bench.model.asked) - before > 350, "a check that was stored is no answer to the next one"


@pytest.mark.parametrize(
    ("judge", "host", "params", "expected"),
    [
        ("", "", {}, "no judge is configured"),
        ("", "", {"judge": "house"}, "'house' is no configured judge"),
        (None, "127.0.0.1", {"judge": "openai/gpt-5"}, "'openai/gpt-5' is no configured judge"),
        (None, "127.0.0.1", {"max_usd": -1}, "greater than or equal to 0"),
        (None, "127.1", {}, "the price of m is unknown"),
        (None, "127.1", {"max_usd": 1}, "the price of m is unknown"),
    ],
)
def test_a_check_that_cannot_run_is_refused(
    bench: Bench, judge: str | None, host: str, params: dict[str, Any], expected: str
) -> None:
    """Nothing is asked, and nothing is said to have begun."""
    client = bench.serve(judge=judge, host=host)
    refused = refusal(client, **params)
    assert (refused.status, expected in str(refused)) == (400, True), str(refused)
    assert client.call("GET judge/checks")["started"] is None
    assert bench.model.asked == []


@pytest.mark.parametrize(
    ("budget", "params", "expected"),
    [(100, {"max_usd": 0.15}, "is 0.15 USD, "), (0.2, {}, "the day's judge budget")],
)
def test_a_cap_stops_it_and_more_money_goes_on(
    bench: Bench, budget: float, params: dict[str, Any], expected: str
) -> None:
    """Its own cap, or else the day's: no report, the spending is booked, and what was paid for is not paid again."""
    client = bench.serve(PRICED, name=f"budget_usd_per_day = {budget}\n")
    begun = client.call("POST judge/check", params)
    assert begun["cost_usd"] > 0.2
    found = ended(client)
    assert expected in found["started"]["error"]
    assert found["checks"] == []
    billed = sum(map(sum, bench.model.billed)) * 10 / 1e6
    assert money(client) == pytest.approx(billed)
    assert spent(client) == pytest.approx(0.0 if params else billed)
    assert 0 < billed <= params.get("max_usd", budget)
    asked = len(bench.model.asked)
    bench.collectors.pop().stop()
    client = bench.serve(PRICED, name="budget_usd_per_day = 100\n")
    client.call("POST judge/check", {"max_usd": 50})
    assert len(ended(client)["checks"]) == 1
    assert len(bench.model.asked) < begun["questions"] + 10
    assert len(bench.model.asked) > asked
    assert money(client) == pytest.approx(sum(map(sum, bench.model.billed)) * 10 / 1e6)


def test_a_stop_in_the_middle_leaves_no_half_result(bench: Bench) -> None:
    """The collector stops while the judge answers; the next one goes on with what was recorded."""
    client = bench.serve(PRICED, name="budget_usd_per_day = 100\n")
    answer, held = bench.model.answer, threading.Event()

    def holds(prompt: str) -> str | int | bytes | None:
        if len(bench.model.asked) > 100:
            held.set()
            bench.open.clear()
        return answer(prompt)

    bench.model.answer = holds
    begun = client.call("POST judge/check")
    assert held.wait(60)
    bench.collectors.pop().stop()
    assert stored_reports("own.duckdb") == []
    bench.model.answer = answer
    bench.open.set()
    asked = len(bench.model.asked)
    client = bench.serve(PRICED, name="budget_usd_per_day = 100\n")
    before = spent(client)
    assert before > 0
    assert [one["check"]["verdicts"] for one in ended(client)["checks"]] == [[GOOD]]
    assert asked < len(bench.model.asked) < begun["questions"] + 20
    assert before < spent(client)


def test_a_judge_that_cannot_be_asked_is_named(bench: Bench) -> None:
    """The failure is shown where the progress is."""
    client = bench.serve()
    bench.model.answer = lambda _: 401
    client.call("POST judge/check")
    found = ended(client)
    assert "401" in found["started"]["error"]
    assert found["checks"] == []
