"""The collector's files removed, replaced or damaged under it, over real processes: nothing acknowledged is lost."""

from __future__ import annotations

import http.client
import math
import os
import random
import signal
import urllib.error
from contextlib import closing
from pathlib import Path

import pytest
from served import Served
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.records import Batch
from ragpulse_collector.settings import ApiKey
from ragpulse_collector.store import EmbeddedStore, embedded

REQUESTS = 12
BYTES_A_SPAN = 800
WORDS = [f"{random.Random(number).randrange(36**6):x}" for number in range(20_000)]
"""A vocabulary as large as that of ordinary prose, whose words have about as many letters."""


def trace(number: int, *, words: int = 5) -> list[dict[str, object]]:
    """The spans of a trace with a text of its own."""
    return rag_trace(number, response=" ".join(random.Random(number).choices(WORDS, k=words)))


def spans(url: str) -> int:
    """How many spans can be read, each counted once."""
    return int(connect(url).sql("select count(distinct (trace_id, span_id)) as n from spans").rows()[0]["n"])


def refused(url: str, number: int) -> str:
    """Send a request that must be refused for now; return the reason."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        send(url, trace(number))
    with raised.value as answer:
        assert (answer.code, answer.headers["retry-after"]) == (503, "1")
        return answer.read().decode("utf-8", "replace")


def ready(url: str) -> tuple[int, str]:
    """What /readyz answers."""
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_a_removed_file_is_503_until_it_is_back(tmp_path: Path) -> None:
    """Refused, logged, shown in status and readyz; back in its place everything goes on without a restart."""
    db, away = tmp_path / "ragpulse.duckdb", tmp_path / "away.duckdb"
    with Served(db) as process:
        send(process.url, trace(0))
        db.rename(away)
        assert "was removed" in refused(process.url, 1)
        assert eventually(lambda: ready(process.url), lambda answer: answer[0] == 503)[1].startswith("not ready: ")
        assert "was removed" in connect(process.url).call("GET status")["db"]["problem"]
        assert len(connect(process.url).call("GET traces")["traces"]) == 1
        away.rename(db)
        send(process.url, trace(1))
        eventually(lambda: ready(process.url), lambda answer: answer[0] == 200)
        assert connect(process.url).call("GET status")["db"]["problem"] is None
        assert spans(process.url) == 6
        assert process.terminate() == 0
        assert f"{db} was removed" in process.errors
    with Served(db) as process:
        assert spans(process.url) == 6


def test_what_a_removed_file_held_is_saved_by_a_snapshot(tmp_path: Path) -> None:
    """As the guide says: snapshot, stop, into its place, start."""
    db, copy = tmp_path / "ragpulse.duckdb", tmp_path / "saved.duckdb"
    with Served(db) as process:
        for number in range(REQUESTS):
            send(process.url, trace(number))
        for file in tmp_path.glob("ragpulse.duckdb*"):
            file.unlink()
        refused(process.url, REQUESTS)
        connect(process.url).download("GET snapshot", {}, copy)
        assert process.terminate() == 0
    copy.rename(db)
    with Served(db) as process:
        assert spans(process.url) == 3 * REQUESTS
        send(process.url, trace(REQUESTS))


def test_a_replaced_file_is_503_and_stays_as_it_is(tmp_path: Path) -> None:
    """Neither the file nor the log that came with it is written to, also when the process ends."""
    db, other = tmp_path / "ragpulse.duckdb", tmp_path / "other.duckdb"
    with Served(other) as process:
        send(process.url, trace(0))
        assert process.terminate() == 0
    with Served(db) as process:
        send(process.url, trace(1))
        whole = other.read_bytes()
        other.replace(db)
        assert "was replaced" in refused(process.url, 2)
        assert process.terminate() == 0
    assert db.read_bytes() == whole


@pytest.mark.parametrize("at", [0.0, 0.5], ids=["head", "middle"])
def test_a_damaged_log_is_kept_aside_and_told(tmp_path: Path, at: float) -> None:
    """The collector starts, what is before the damage is there, the rest is in the file that the log names."""
    db, log = tmp_path / "ragpulse.duckdb", tmp_path / "ragpulse.duckdb.wal"
    with Served(db) as process:
        assert process.terminate() == 0
    with Served(db) as process:
        for number in range(REQUESTS):
            send(process.url, trace(number))
        process.kill()
    whole = bytearray(log.read_bytes())
    for byte in range(int(len(whole) * at), int(len(whole) * at) + 8):
        whole[byte] ^= 0xFF
    log.write_bytes(whole)
    with Served(db) as process:
        (kept,) = tmp_path.glob("*.damaged-*")
        assert kept.read_bytes() == whole
        assert connect(process.url).call("GET status")["db"]["damaged_logs"] == [str(kept)]
        assert "bytes cannot be read" in process.errors
        assert str(kept) in process.errors
        left = spans(process.url)
        assert (left > 0) is (at > 0)
        send(process.url, trace(REQUESTS))
        assert spans(process.url) == left + 3


def test_a_clean_stop_leaves_a_compact_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log beside it, and at most 800 bytes a span with texts of 150 words that hardly repeat.

    A disk that is busy while the collector stops keeps the log for the next to close, which here has the time.
    """
    db, requests, traces = tmp_path / "ragpulse.duckdb", 50, 100
    with Served(db) as process:
        for number in range(requests):
            send(process.url, [span for one in range(traces) for span in trace(number * traces + one, words=150)])
        assert os.stat(f"{db}.wal").st_size > 16 * 2**20
        assert process.terminate() == 0
    monkeypatch.setattr(embedded, "CHECKPOINT_ON_CLOSE_S", math.inf)
    EmbeddedStore(db, decode=lambda _: Batch()).close()
    assert [file.name for file in tmp_path.glob("ragpulse.duckdb*")] == [db.name]
    assert db.stat().st_size / (requests * traces * 3) <= BYTES_A_SPAN


def test_a_hangup_reloads_rules_monitors_prices_and_keys(tmp_path: Path) -> None:
    """A file that is wrong changes nothing and is named in the log; a right one holds at once, without a restart."""
    config = tmp_path / "ragpulse.toml"
    rule = '[[rule]]\nname = "live"\nevaluators = ["{}"]\nrate = {}\n'
    monitor = '[[monitor]]\nname = "slow"\nmetric = "latency_p95"\ncondition = "> 3000"\n'
    secret, key = ApiKey.generated("ops", ("admin",))
    keys = f'[collector]\nsettle_s = 1\napi_keys = [{{ name = "ops", scopes = ["admin"], sha256 = "{key.sha256}" }}]\n'
    prices = "[prices.own]\ninput = 1\noutput = 1\n"
    config.write_text(rule.format("refusal", 0.5))
    with Served(tmp_path / "t.duckdb", "--config", str(config)) as served:
        client = connect(served.url)

        def reload(text: str, logged: str) -> None:
            config.write_text(text)
            served.process.send_signal(signal.SIGHUP)
            eventually(lambda: served.errors, lambda errors: logged in errors)

        mistakes = ((rule.format("refusl", 1), "refusl"), ("[collector\n", "Expected ']'"), (monitor * 2, "twice"))
        for wrong, reason in mistakes:
            reload(prices + wrong, reason)
            assert "the settings stay as they are" in served.errors
            assert [one["rate"] for one in client.call("GET rules")["rules"]] == [1.0, 0.5]
        config.write_bytes(b"# \xe9")
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: served.errors, lambda errors: "can't decode byte 0xe9" in errors)
        config.unlink()
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: served.errors, lambda errors: "No such file" in errors)
        reload(keys + prices + rule.format("refusal", 0.25) + monitor, "settings need a restart: [collector] settle_s")
        with pytest.raises(ClientError, match="an API key is needed"):
            client.call("GET rules")
        client = connect(served.url, api_key=secret)
        assert [one["rate"] for one in client.call("GET rules")["rules"]] == [1.0, 0.25]
        assert [one["name"] for one in client.call("GET monitors")["monitors"]] == ["slow"]
        send(served.url, rag_trace(0, model="own"), api_key=secret)
        (call,) = client.sql("SELECT cost_usd, cost_unknown_reason FROM spans WHERE kind = 'llm'").rows()
        assert call == {"cost_usd": pytest.approx(120e-6), "cost_unknown_reason": None}
