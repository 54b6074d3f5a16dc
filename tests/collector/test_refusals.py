"""A refusal keeps its status and sentence; every other exception is a bug, on every surface."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import NoReturn

import pytest

from ragpulse_collector.api.operations import Operation, perform
from ragpulse_collector.app import Collector
from ragpulse_collector.cli import run
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.refusals import Busy, Conflict, Forbidden, Invalid, NotFound, Refusal, TooSlow
from ragpulse_collector.settings import SettingsError
from ragpulse_collector.store import Refused, StoreError

Start = Callable[..., Collector]
BUGS = [KeyError("model"), ValueError("no number"), IndexError(3), LookupError("x"), TimeoutError(), PermissionError(1)]
SENTENCE = "the collector failed to answer; its log has the reason"


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return what an operation runs."""

    def run() -> NoReturn:
        raise error

    return run


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Invalid("write a number"), 400),
        (SettingsError("write a number"), 400),
        (StoreError("write a number"), 400),
        (Refused("write a number"), 400),
        (Forbidden("write a number"), 403),
        (NotFound("write a number"), 404),
        (Conflict("write a number"), 409),
        (Busy("write a number", retry_after_s=7), 503),
        (TooSlow("write a number"), 504),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_refusal_has_its_status_and_sentence(refusal: Refusal, status: int) -> None:
    """Whoever raises it decides; `Retry-After` is sent only where waiting helps."""
    with pytest.raises(Refusal) as refused:
        await perform(Operation("GET x", raising(refusal)), {})
    assert (refused.value.status, refused.value.message) == (status, "write a number")
    assert refused.value.headers == ({"Retry-After": "7"} if status == 503 else {})


@pytest.mark.anyio
@pytest.mark.parametrize("bug", [*BUGS, OverflowError("date"), TypeError("x")], ids=lambda bug: type(bug).__name__)
async def test_built_in_exceptions_carry_no_status(bug: Exception) -> None:
    """A lookup that fails inside an operation is no 404."""
    with pytest.raises(type(bug)) as raised:
        await perform(Operation("GET x", raising(bug)), {})
    assert raised.value is bug


def status_of(url: str) -> int:
    """The status of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_bug_is_a_500_with_its_traceback_in_the_log(
    collector: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Planted in every operation: HTTP, a page, the command line and its closed file."""
    running = collector()
    client = connect(running.url)
    for bug in BUGS:
        monkeypatch.setattr(Operation, "answer_to", lambda *_, bug=bug: raising(bug)())
        with pytest.raises(ClientError, match=SENTENCE) as answered:
            client.call("GET evaluators")
        assert answered.value.status == 500
        assert status_of(f"{running.url}/evaluators") == 500
        assert run(["traces", "--url", running.url]) == 1
        assert SENTENCE in capsys.readouterr().err
    traced = {(record.name, type(record.exc_info[1])) for record in caplog.records if record.exc_info}
    assert traced >= {(name, type(bug)) for name in ("ragpulse.collector", "ragpulse.dashboards") for bug in BUGS}


def test_a_bug_of_a_closed_file_shows_its_traceback(
    collector: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on the command line takes it for a mistake of the user (an OSError is one: a file cannot be read)."""
    running = collector()
    running.stop()
    for bug in (bug for bug in BUGS if not isinstance(bug, OSError)):
        monkeypatch.setattr(Operation, "answer_to", lambda *_, bug=bug: raising(bug)())
        with pytest.raises(type(bug)):
            run(["traces", "--db", running.settings.collector.db])
    assert capsys.readouterr().err == ""


@pytest.mark.anyio
async def test_a_bug_is_an_error_of_the_tool(collector: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assistant reads that the collector failed, not that nothing was found."""
    pytest.importorskip("mcp")
    from mcp import Client

    from ragpulse_collector.mcp_server import server

    running = collector()
    monkeypatch.setattr(Operation, "answer_to", lambda *_: raising(KeyError("model"))())
    async with Client(server(connect(running.url))) as client:
        result = await client.call_tool("search_traces", {})
    assert result.is_error
    assert SENTENCE in result.content[0].text  # type: ignore[union-attr]
