"""`ragpulse prices update`: the newer table is fetched on request only, written to a file, and used."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from served import Served
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.cli import run
from ragpulse_collector.client import connect
from ragpulse_collector.store import Prices, StoreError
from ragpulse_collector.store.ingest.prices import PricedCall

TIERS = {"base": 3, "tiers": [{"start": 200000, "price": 6}]}
PROVIDER = {
    "id": "acme",
    "name": "Acme",
    "api_pattern": "https://api\\.acme\\.com",
    "model_match": {"contains": "acme"},
    "extractors": [{"api_flavor": "default", "root": "usage", "model_path": "model", "mappings": []}],
    "models": [
        {
            "id": "acme-1",
            "match": {"or": [{"starts_with": "acme-1"}, {"equals": "acme"}]},
            "prices": [
                {"prices": {"input_mtok": 1, "output_mtok": 2}},
                {"constraint": {"start_date": "2026-01-01"}, "prices": {"input_mtok": TIERS, "output_mtok": 15}},
            ],
            "price_variants": [{"when": {"service_tier": "batch"}, "prices": {"input_mtok": 1.5}}],
        }
    ],
}
"""In the form that genai-prices publishes."""
CALL = PricedCall(model="acme-1-large", provider="acme", input_tokens=1_000_000, output_tokens=0)


@contextmanager
def published(body: bytes, status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """A server of the table on loopback: its address, and the requests that it got."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/data.json", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def updated(providers: Any) -> int:
    """Run the command against a server of these providers."""
    with published(json.dumps(providers).encode()) as (url, _):
        return run(["prices", "update", "--from", url])


def test_the_command_says_where_it_goes_and_what_it_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One GET without any data of ours; the file is named."""
    with published(json.dumps([PROVIDER]).encode()) as (url, asked):
        assert run(["prices", "update", "--from", url]) == 0
    told = capsys.readouterr().out
    assert f"asking {url}" in told
    assert "wrote ragpulse.prices.json: 1 models of 1 providers" in told
    assert [path for path, _ in asked] == ["/data.json"]
    assert [file.name for file in folder.iterdir()] == ["ragpulse.prices.json"]


@pytest.mark.parametrize(
    ("call", "usd"),
    [
        (CALL, 6.0),
        (CALL._replace(input_tokens=100_000), 0.3),
        (CALL._replace(input_tokens=100_000, provider="a-proxy"), 0.3),
        (CALL._replace(input_tokens=100_000, service_tier="batch"), 0.15),
        (CALL._replace(model="gpt-5-mini", provider="openai"), None),
    ],
)
def test_the_file_prices_calls(call: PricedCall, usd: float | None) -> None:
    """Dates, tiers and variants as the library reads them; a model that is not in the file has no price."""
    assert updated([PROVIDER]) == 0
    cost = Prices({}, "ragpulse.prices.json").cost(call)
    assert cost.cost_usd == (None if usd is None else pytest.approx(usd))
    assert usd is None or (cost.cost_source or "").startswith("genai-prices 20")


def test_without_the_file_the_installed_table_holds() -> None:
    """Nothing is fetched unless somebody asks."""
    call = PricedCall(model="gpt-5-mini", provider="openai", input_tokens=1000, output_tokens=100)
    price = calc_price(Usage(input_tokens=1000, output_tokens=100), model_ref="gpt-5-mini", provider_id="openai")
    assert Prices({}, "ragpulse.prices.json").cost(call).cost_usd == pytest.approx(float(price.total_price))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"<html>", 200, "no price table"),
        (b"[]", 200, "without models"),
        (b'[{"id": 1}]', 200, "no price table"),
        (b'{"a": 1}', 200, "no price table"),
        (b"[]", 404, "404"),
    ],
)
def test_what_is_no_table_changes_nothing(
    body: bytes, status: int, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails with the reason, and what was there stays."""
    assert updated([PROVIDER]) == 0
    before = (folder / "ragpulse.prices.json").read_bytes()
    with published(body, status) as (url, _):
        assert run(["prices", "update", "--from", url]) == 1
    assert told in capsys.readouterr().err
    assert (folder / "ragpulse.prices.json").read_bytes() == before


def test_a_damaged_file_is_refused_with_the_fix(folder: Path) -> None:
    """Prices of a file that cannot be read are never those of another table."""
    (folder / "ragpulse.prices.json").write_text("{}")
    with pytest.raises(StoreError, match=r"ragpulse\.prices\.json is no price table .*prices update.*delete it"):
        Prices({}, "ragpulse.prices.json")


def test_a_running_collector_reads_it_on_sighup(folder: Path) -> None:
    """A model without a price has one after update, SIGHUP and remap; Health and Status show the table's date."""
    with Served(folder / "ragpulse.duckdb") as process:
        client = connect(process.url)
        send(process.url, rag_trace(1, model="acme-1-large"))
        until(client, "select 1 from spans where cost_unknown_reason = 'no price for acme-1-large'")
        assert client.call("GET status")["prices"]["updated"] is None
        assert updated([PROVIDER]) == 0
        process.process.send_signal(1)
        told = eventually(lambda: client.call("GET status")["prices"], lambda prices: prices["updated"])
        client.call("POST remap")
        until(client, "select 1 from spans where cost_usd > 0")
        with urllib.request.urlopen(f"{process.url}/health") as page:
            assert f"updated {told['updated']}" in page.read().decode()
    assert told["source"].startswith("http://127.0.0.1:")
    assert told["table"] == f"genai-prices {told['updated']}"
