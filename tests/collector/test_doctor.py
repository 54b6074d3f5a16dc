"""`ragpulse doctor`: each thing that is usually wrong is found, and the fix is named."""

from __future__ import annotations

import http.server
import shutil
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli.look import Finding, diagnose
from ragpulse_collector.cli.options import Source
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.settings import ApiKey

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at no configuration but the test's, on a disk with room."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_PROXY", raising=False)
    has_room(monkeypatch, 10**10)


def has_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let the disk have so many bytes."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**11, 10**11 - free, free))


def wrong(url: str = NOBODY) -> list[Finding]:
    """What is found to be wrong."""
    return [finding for finding in diagnose(Source(url, None, None)) if not finding.ok]


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("OTEL_SDK_DISABLED", "true", "unset OTEL_SDK_DISABLED"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4328", "RAGPULSE_URL="),
        ("HTTP_PROXY", "http://proxy:3128", "NO_PROXY"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT", "unset"),
    ],
)
def test_the_environment_is_looked_at(monkeypatch: pytest.MonkeyPatch, name: str, value: str, fix: str) -> None:
    """A variable that keeps spans from arriving is named with what to do."""
    monkeypatch.setenv(name, value)
    assert any(fix in (finding.fix or "") for finding in wrong())


def test_a_collector_that_is_not_there_is_started_by_hand() -> None:
    """Nobody listens: the command that helps is the fix."""
    assert [finding.fix for finding in wrong()] == ["ragpulse serve"]


@pytest.fixture
def stranger() -> Iterator[str]:
    """Serve something that is no collector."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Silent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


class _Silent(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


def test_somebody_else_on_the_port_is_recognised(stranger: str) -> None:
    """An answer that is not ours names the likely owner."""
    (finding,) = wrong(stranger)
    assert "not a ragpulse collector" in finding.text
    assert "OpenTelemetry Collector" in (finding.fix or "")


def test_a_collector_that_needs_a_key_is_recognised(collector: Callable[..., Collector]) -> None:
    """It is the right program; the fix names the option."""
    running = collector(api_keys=[ApiKey.generated("ops", ("read",))[1].model_dump()])
    (finding,) = wrong(running.url)
    assert "refuses to answer: an API key is needed" in finding.text
    assert "--api-key" in (finding.fix or "")


def test_a_mistake_in_the_configuration_is_told(tmp_path: Path) -> None:
    """The line and the nearest name are repeated."""
    (tmp_path / "ragpulse.toml").write_text("[collector]\nprot = 4318\n")
    assert any("ragpulse.toml:2" in finding.text and "port" in finding.text for finding in wrong())


def test_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a gigabyte free is worth a word."""
    has_room(monkeypatch, 10**6)
    assert any("retention_gb" in (finding.fix or "") for finding in wrong())


def test_the_data_is_looked_at(collector: Callable[..., Collector]) -> None:
    """Refused requests, a clock that runs ahead and a model without a price are found."""
    running = collector()
    send(running.url, rag_trace(0, model="in-house-7b", start_ns=time.time_ns() + 3600 * 10**9))
    with pytest.raises(ClientError):
        connect(running.url).request("POST", "/v1/traces", body=[])
    told = " ".join(f"{finding.text} {finding.fix}" for finding in wrong(running.url))
    for part in ("refused with 400", "in the future", '[prices."in-house-7b"]'):
        assert part in told


def test_traces_that_nothing_decides_are_told(
    collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doctor and Prometheus count the undecided traces; once the oldest is too old, something is wrong."""
    running = collector(roles=("ingest",))
    send(running.url, [*rag_trace(0), *rag_trace(1)])
    assert wrong(running.url) == []
    monkeypatch.setattr("ragpulse_collector.api.health.OLD_S", -1.0)
    (finding,) = wrong(running.url)
    assert "2 traces are undecided" in finding.text
    assert "ragpulse_undecided_traces 2\n" in connect(running.url).request("GET", "/metrics").decode()


@pytest.mark.parametrize(
    ("is_installed", "text"),
    [(True, "no topics yet: topics begin at 500 questions; there are 1"),
     (False, "no topics yet: topics need word vectors and scikit-learn: pip install 'ragpulse[topics]'")],
)  # fmt: skip
def test_topics_are_told_in_one_line(
    collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch, is_installed: bool, text: str
) -> None:
    """Nothing is wrong where there are none: the line says what they wait for."""
    monkeypatch.setattr("ragpulse_collector.topics.live.is_installed", lambda: is_installed)
    running = collector()
    send(running.url, rag_trace(0))
    until(connect(running.url), "SELECT * FROM traces WHERE decided", 1)
    (line,) = [finding.text for finding in diagnose(Source(running.url, None, None)) if "topics" in finding.text]
    assert line == text


def test_a_healthy_installation_has_nothing_wrong(collector: Callable[..., Collector]) -> None:
    """Spans that just came, a known price, an answer: every finding is ok."""
    running = collector()
    send(running.url, rag_trace(0))
    assert wrong(running.url) == []
