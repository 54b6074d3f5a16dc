"""The built-in rules: free checks run beside rules of one's own, the judged one never; what loses its data is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stored_units import create_empty
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import Collector
from ragpulse_collector.app.serve import _greeting
from ragpulse_collector.cli.look import diagnose
from ragpulse_collector.cli.options import Source
from ragpulse_collector.client import connect
from ragpulse_collector.settings import Settings

FREE = {"groundedness", "context_utilization", "citation_check", "refusal"}
JUDGE = {"model": "http://127.0.0.1:9/v1#m"}


def rule(*evaluators: str, name: str = "own", rate: float = 0.5) -> dict[str, Any]:
    """A rule of one's own."""
    return {"name": name, "evaluators": list(evaluators), "rate": rate}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Start collectors one after another over the same file."""
    create_empty(tmp_path / "own.duckdb")
    running: list[Collector] = []

    def started(**settings: Any) -> Collector:
        for each in running:
            each.stop()
        options = {"db": str(tmp_path / "own.duckdb"), "port": 0, "settle_s": 0.0, "quiet_s": 0.2}
        running[:] = [Collector(Settings.model_validate(settings).with_options("collector", options))]
        running[0].start()
        return running[0]

    yield started
    for each in running:
        each.stop()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {("offline", 1.0): FREE}),
        ({"offline": False}, {}),
        ({"judge": JUDGE}, {("offline", 1.0): FREE, ("faithfulness", 0.05): {"faithfulness"}}),
        ({"judge": JUDGE, "offline": False}, {("faithfulness", 0.05): {"faithfulness"}}),
        ({"rule": [rule("exact_match")]}, {("offline", 1.0): FREE, ("own", 0.5): {"exact_match"}}),
        ({"rule": [rule("exact_match")], "offline": False}, {("own", 0.5): {"exact_match"}}),
        (
            {"rule": [rule("faithfulness")], "judge": JUDGE},
            {("offline", 1.0): FREE, ("own", 0.5): {"faithfulness"}},
        ),
        ({"rule": [rule("exact_match")], "judge": JUDGE}, {("offline", 1.0): FREE, ("own", 0.5): {"exact_match"}}),
        (
            {"rule": [rule("groundedness", "refusal@3")]},
            {("offline", 1.0): FREE - {"groundedness", "refusal"}, ("own", 0.5): {"groundedness", "refusal@3"}},
        ),
        ({"rule": [rule(*sorted(FREE), rate=0.1)]}, {("own", 0.1): FREE}),
        ({"rule": [rule("refusal", name="offline")]}, {("offline", 0.5): {"refusal"}}),
    ],
)
def test_free_checks_stay_beside_ones_own_rules(start: Callable[..., Collector], settings: Any, expected: Any) -> None:
    """A rule decides about the checks that it names; the judged rule is not added, since it spends money."""
    rules = start(**settings).components.rules.effective()
    assert {(each.name, each.rate): set(each.evaluators) for each in rules} == expected


def test_what_no_longer_gets_data_and_what_comes_back_is_told(start: Callable[..., Collector]) -> None:
    """At the start, in `GET status` and by the doctor; a monitor of it is a problem."""
    spec = {"name": "m", "metric": "fail_rate:groundedness", "condition": "> 0.5"}
    settings: dict[str, Any] = {"monitor": [spec], "rule": [rule("exact_match")]}

    def said(collector: Collector, number: int) -> str:
        """The lines of the start about rules, and a trace that is decided."""
        told = "\n".join(line for line in _greeting(collector) if "any more" in line or "beside" in line)
        send(collector.url, rag_trace(number))
        until(connect(collector.url), "select 1 from traces", number + 1)
        return told

    assert said(start(monitor=[spec]), 0) == ""
    blind = start(**settings, offline=False)
    told = said(blind, 1)
    assert "not evaluated any more: groundedness; monitor m gets no new data" in told
    assert "not evaluated any more: refusal" in told
    client = connect(blind.url)
    (problem,) = [each for each in client.call("GET status")["problems"] if each["name"] == "retired"]
    assert "no rule evaluates groundedness any more: monitor m gets no new data" in problem["text"]
    found = diagnose(Source(blind.url, None, None))
    assert [each.ok for each in found if "monitor m gets no new data" in each.text] == [False]
    assert [each.ok for each in found if "not evaluated any more: citation_check" in each.text] == [True]
    again = said(start(**settings, offline=False), 2)
    assert again.count("any more") == 1, "what nothing reads is told once"
    back = said(start(**settings), 3)
    assert "beside your rules from now on: citation_check, context_utilization, groundedness, refusal" in back
    assert "any more" not in back
    assert said(start(**settings), 4) == ""
