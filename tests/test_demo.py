"""`ragpulse demo` runs the main job by itself and finds the planted regression."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import Collector
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.demo.application import GAP, NEW, QUESTIONS, Index, guides, passages
from ragpulse_collector.demo.traffic import TURNS, visits
from ragpulse_collector.settings import Settings
from ragpulse_collector.topics import LEAST_QUESTIONS, LEAST_USERS


def test_the_demo_ends_by_itself_and_names_the_worse_prompt() -> None:
    """Offline, beside a proxy that knows nothing of it, exit 0: a table per prompt version, the verdict, the page."""
    command = [sys.executable, "-m", "ragpulse_collector", "demo"]
    environment = os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    for told in (
        "prompt v1",
        "prompt v2",
        "latency p95 ms",
        "tokens in",
        "cost USD",
        "groundedness",
        "pages: ragpulse demo --serve",
    ):
        assert told in done.stdout, told
    assert "groundedness, v2 against v1: worse" in done.stdout
    assert "prompt qa v2 began" in done.stdout
    before, after = (float(one) for one in re.findall(r"(0\.\d+) [(±]", done.stdout.split("groundedness")[1])[:2])
    assert before > 0.9
    assert 0.7 < after < 0.85, "a regression that one can see, not a broken service"
    assert "unclear share" in done.stdout
    assert "cost USD                   unknown" not in done.stdout


def test_visits_are_spread_over_hours_and_change_their_prompt_half_way() -> None:
    """Every question equally often under each version, in order of time, from six hours ago until now."""
    planned = visits(rounds=2)
    assert [one.ago for one in planned] == sorted((one.ago for one in planned), reverse=True)
    assert planned == visits(rounds=2)
    assert timedelta(hours=5, minutes=30) < planned[0].ago < timedelta(hours=6, minutes=1)
    assert planned[-1].ago < timedelta(minutes=10)
    half = [one.version for one in planned].index("v2")
    assert {one.version for one in planned[:half]} == {"v1"}
    assert {one.version for one in planned[half:]} == {"v2"}
    for question in QUESTIONS:
        assert Counter(one.version for one in planned if one.question == question) == {"v1": 2, "v2": 2}
    assert len({one.user for one in planned[:half]}) >= 20
    assert max(Counter(one.session for one in planned).values()) == TURNS


def test_a_gap_and_a_new_topic_are_planted() -> None:
    """Questions that no guide answers come under both versions and from many users; the new topic only at the end."""
    planned = visits()
    assert len(planned) >= LEAST_QUESTIONS
    missing = [one for one in planned if one.question in GAP]
    assert Counter(one.version for one in missing) == {"v1": 36, "v2": 36}
    assert min(len({one.user for one in missing if one.question == question}) for question in GAP) >= LEAST_USERS
    assert all(one.ago < timedelta(hours=3) for one in planned if one.question in NEW)
    index = Index(passages(guides()))
    assert sum(len(index.unknown(question)) > 1 for question in GAP) == 6, "the application declines these"
    assert not [question for question in (*QUESTIONS, *NEW) if len(index.unknown(question)) > 1]


def test_demo_data_can_be_loaded_once_and_removed(tmp_path: Path) -> None:
    """Requests of hours, all of the service demo; nothing of it is left behind, and other data stays."""
    settings = Settings().with_options("collector", {"db": str(tmp_path / "t.duckdb"), "port": 0, "settle_s": 0.0})
    running = Collector(settings)
    running.start()
    try:
        client = connect(running.url)
        send(running.url, rag_trace(1, query="Mine?"))
        loaded = client.call("POST demo")
        with pytest.raises(ClientError, match="stored already"):
            client.call("POST demo")
        until(client, f"select 1 from decisions having count(*) >= {4 * (loaded['traces'] + 1)}")
        held = "select service, count(*) n, date_diff('minute', min(start_time), max(start_time)) m from traces"
        rows = client.sql(f"{held} where service = 'demo' group by 1").rows()
        assert [(row["n"], row["m"] > 300) for row in rows] == [(loaded["traces"], True)]
        assert client.call("GET overview", {"from": "-2h"})["demo"] is True
        assert client.call("DELETE demo")["deleted"]["spans"] > loaded["traces"]
        assert client.sql("select count(*) n from traces").rows() == [{"n": 1}]
        assert client.sql("select count(*) n from decisions").rows() == [{"n": 4}]
        assert client.call("DELETE demo")["deleted"] == {}
    finally:
        running.stop()


def test_the_traffic_looks_like_a_service(tmp_path: Path) -> None:
    """Priced calls of two models, seconds of latency, a few failures and slow calls, sessions, thumbs up and down."""
    settings = Settings().with_options("collector", {"db": str(tmp_path / "t.duckdb"), "port": 0, "settle_s": 0.0})
    running = Collector(settings)
    running.start()
    try:
        client = connect(running.url)
        client.call("POST demo")
        until(client, "select 1 from scores where evaluator = 'thumbs' having count(distinct score) = 2")
        (row,) = client.sql(
            "select count(distinct model) models, count(distinct session_id) sessions, median(latency_ms) p50,"
            " quantile_cont(latency_ms, 0.99) p99, count(*) filter (error) failed,"
            " count(*) filter (cost_usd is null and not error) unpriced from traces"
        ).rows()
        assert (row["models"], row["unpriced"]) == (2, 0)
        assert row["sessions"] > 100
        assert 1_000 < row["p50"] < 2_000
        assert row["p99"] > 5_000
        assert 1 <= row["failed"] <= 15
    finally:
        running.stop()


def test_every_question_finds_passages_of_the_guides() -> None:
    """The corpus is the project's own documentation, ranked by BM25, best first."""
    index = Index(passages(guides()))
    assert len(index.entries) > 50
    for question in QUESTIONS:
        scores = [score for _, score in index.search(question, 4)]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)


def test_on_a_terminal_the_demo_serves_its_pages_until_interrupted() -> None:
    """The address that it prints answers; Ctrl-C ends it with exit 0."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ragpulse_collector", "demo"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a suite in the background is started deaf to Ctrl-C
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=heard
    ) as process:
        os.close(theirs)
        printed = ""
        while "(Ctrl-C ends)" not in printed:
            printed += os.read(ours, 65536).decode("utf-8", "replace")
        (url,) = re.findall(r"pages: (\S+)", printed)
        with urllib.request.urlopen(url, timeout=60) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    os.close(ours)
