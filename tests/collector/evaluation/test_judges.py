"""Judges of a running collector: who is asked, with which key, and that the bill is what the server counted."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from judge_suite import ORDERS, marked_away
from loopback import LoopbackModel
from stored_units import create_empty
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import Collector
from ragpulse_collector.cli.look import diagnose
from ragpulse_collector.cli.options import Source
from ragpulse_collector.client import Client, connect
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.evaluation.judge import JudgePrices, PricedJudge
from ragpulse_collector.settings import Price, Settings, SettingsError
from ragpulse_collector.store import Prices
from ragpulse_evaluators import ConfigurationError, HTTPJudge, JudgeError, errors
from ragpulse_evaluators.judges.protocol import ScriptedJudge

PRICED = "[prices.paid]\ninput = 1.0\noutput = 10.0\n"
RULE = '[[rule]]\nname = "all"\nevaluators = ["helpfulness"]\nrate = 1\n'
VERDICT = '{"reason": "fine", "score": 1.0}'
SECRET = "sk-secret-0123456789"
Answer = tuple[int, str | bytes]


class Played:
    """A server that answers every question with the same status and body; it keeps questions and headers."""

    def __init__(self, answer: Answer | Callable[[], Answer]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def url(self, host: str = "127.1") -> str:
        """The address, which by default does not look like this computer's, so that money counts."""
        return f"http://{host}:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler(played: Played) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            played.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            played.headers.append(dict(self.headers))
            played.paths.append(self.path)
            status, body = played.answer() if callable(played.answer) else played.answer
            payload = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    return Handler


@pytest.fixture
def play() -> Iterator[Callable[[Answer | Callable[[], Answer]], Played]]:
    """Start servers; they end with the test."""
    servers: list[Played] = []

    def start(answer: Answer | Callable[[], Answer]) -> Played:
        servers.append(Played(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def reply(content: Any = VERDICT, reason: str = "stop", read: int = 120, written: int = 5, **usage: Any) -> str:
    """A chat completion."""
    counts = {"prompt_tokens": read, "completion_tokens": written} | usage
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}
    return json.dumps({"model": "m", "choices": [choice], "usage": counts})


@contextmanager
def collecting(folder: Path, configuration: str) -> Iterator[Client]:
    """A collector with this configuration, over the file in this folder."""
    path = folder / "ragpulse.toml"
    path.write_text(f'[collector]\nsettle_s = 0\nport = 0\ndb = "{folder / "ragpulse.duckdb"}"\n{configuration}')
    create_empty(folder / "ragpulse.duckdb")
    running = Collector(load_settings(path, {}).model_copy(update={"offline": False}))
    running.start()
    try:
        yield connect(running.url)
    finally:
        running.stop()


def usd(read: int, written: int) -> float:
    """What the provider bills."""
    return read * 1e-6 + written * 10e-6


STREAM = "".join(
    f"data: {json.dumps(one)}\n\n"
    for one in (
        {"choices": [{"index": 0, "delta": {"content": VERDICT}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 5}},
    )
)
BILLS: dict[str, tuple[Answer, str, float]] = {
    "a verdict": ((200, reply()), "ok", usd(120, 5)),
    "Grok: reasoning in the total": ((200, reply(total_tokens=425)), "ok", usd(120, 305)),
    "reasoning above the output": (
        (200, reply(completion_tokens_details={"reasoning_tokens": 300})),
        "ok",
        usd(120, 305),
    ),
    "a stream": ((200, STREAM), "ok", usd(120, 5)),
    "a byte-order mark": ((200, b"\xef\xbb\xbf" + reply().encode()), "ok", usd(120, 5)),
    "cut": ((200, reply("1", "MAX_TOKENS", written=16)), "invalid", usd(120, 16)),
    "blocked on the way out": ((200, reply("", "SAFETY", written=0)), "invalid", usd(120, 0)),
    "blocked before": ((400, '{"error": {"code": "data_inspection_failed", "message": "no"}}'), "invalid", 0.0),
    "blocked by Gemini": ((200, '{"choices": null, "promptFeedback": {"blockReason": "SAFETY"}}'), "invalid", 0.0),
    "no choices": (
        (200, '{"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 0}}'),
        "error",
        usd(120, 0),
    ),
    "an empty content": ((200, reply("")), "invalid", usd(120, 5)),
    "a wrong key": ((401, '{"error": {"message": "Incorrect API key"}}'), "error", 0.0),
    "an unknown model": ((404, '{"error": {"message": "no such model"}}'), "error", 0.0),
}


def test_the_bill_is_what_the_server_counted(tmp_path: Path, play: Any) -> None:
    """Each is asked once: two blocked questions were booked at $0.42, reasoning was left out of the bill.

    One collector for all rows; each answers a trace of its own, so that no recorded reply is found.
    """
    server, billed = play((500, "")), 0.0
    with collecting(tmp_path, f'[judge]\nmodel = "{server.url()}#paid"\n{PRICED}{RULE}') as client:
        for number, (case, (answer, status, dollars)) in enumerate(BILLS.items(), start=1):
            server.answer, billed = answer, billed + dollars
            send(client.url, rag_trace(number, response=f"Answer {number}."))
            until(client, "select 1 from scores", number)
            of_trace = f"select status from scores where trace_id = '{number + 1:032x}'"
            assert client.sql(of_trace).rows() == [{"status": status}], case
            money = client.call("GET status")["judge"]
            assert [money["spent_today_usd"], money["spent_this_month_usd"]] == pytest.approx([billed] * 2), case
            assert len(server.asked) == number, case


class _Never(errors.JudgeError):
    retriable = False


FAILURES = [
    JudgeError("no connection"),
    errors.JudgeRejected("no key"),
    errors.ContextTooLong("too long", window=10),
    errors.BudgetExceeded("enough"),
    errors.NoRecording("none"),
    ConfigurationError("litellm is not installed"),
    errors.Unreadable("nothing"),
    ImportError("No module named 'boto3'"),
    OSError("no route"),
    ValueError("a bug before the request"),
    _Never("of a user's judge"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("counted", [None, (120, 5)])
def test_a_call_that_was_not_sent_costs_nothing(failure: Exception, counted: tuple[int, int] | None) -> None:
    """Of every class of errors: only what says that it may be billed, or what was counted, has a cost."""
    settings = Settings(prices={"paid": Price(input=1, output=10)})
    priced = PricedJudge(ScriptedJudge([failure], id="paid"), JudgePrices(settings, Prices(settings.prices)))
    if counted and isinstance(failure, JudgeError):
        failure.calls = (errors_call(*counted),)
    with pytest.raises(type(failure)) as raised:
        asyncio.run(priced.ask([{"role": "user", "content": "?"}]))
    costs = [call.cost_usd for call in getattr(raised.value, "calls", ())]
    assert costs == ([pytest.approx(usd(*counted))] if counted and isinstance(failure, JudgeError) else [])
    if isinstance(failure, JudgeError):
        failure.calls = ()


def errors_call(read: int, written: int) -> Any:
    """A call that a server counted."""
    from ragpulse_evaluators import JudgeCall

    return JudgeCall(input_tokens=read, output_tokens=written, model="paid")


@pytest.mark.parametrize(
    ("base", "billed"),
    [
        ("http://127.0.0.1:9/v1", False),
        ("http://nowhere.invalid/v1", False),
        ("https://127.0.0.1:{port}/v1", False),
        ("http://127.0.0.1:{port}/v1", True),
    ],
)
def test_only_a_request_that_left_may_be_billed(base: str, billed: bool) -> None:
    """No server, no name, no TLS: nothing was sent. A connection that is closed after the request may be billed."""
    with _closing_server() as port:
        judge = HTTPJudge(base.format(port=port), "m", timeout_s=60)
        with pytest.raises(JudgeError) as failed:
            asyncio.run(judge.ask([{"role": "user", "content": "?"}]))
    assert (failed.value.maybe_billed, failed.value.retriable) == (billed, True)


@contextmanager
def _closing_server() -> Iterator[int]:
    """A server that reads what it gets and closes the connection."""
    import socket

    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.recv(65536)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    listening.close()


def scored(client: Client, count: int) -> list[dict[str, Any]]:
    """The scores, once there are so many."""
    until(client, "select 1 from scores", count)
    return list(
        client.sql("select evaluator, judge, normalized, cost_usd from scores order by created_at, judge").rows()
    )


def test_two_servers_with_one_models_name_are_two_judges(tmp_path: Path, play: Any) -> None:
    """B was never asked and got A's 1.0; in the same collector, and after the judge has moved."""
    a, b = (play((200, reply(f'{{"score": {score}}}'))) for score in ("1.0", "0.0"))
    second = f'[[evaluator]]\nname = "second"\nuse = "helpfulness"\njudge = "{b.url()}#paid"\n'
    rule = RULE.replace('["helpfulness"]', '["helpfulness", "second"]')
    with collecting(tmp_path, f'[judge]\nmodel = "{a.url()}#paid"\n{PRICED}{second}{rule}') as client:
        send(client.url, rag_trace(1))
        scores = {row["evaluator"]: (row["normalized"], row["judge"]) for row in scored(client, 2)}
    assert (scores["helpfulness"][0], scores["second"][0]) == (1.0, 0.0)
    assert scores["helpfulness"][1] != scores["second"][1]
    with collecting(tmp_path, f'[judge]\nmodel = "{b.url()}#paid"\n{PRICED}') as client:
        client.call("POST replays", {"evaluators": ["helpfulness"]})
        moved = [row for row in scored(client, 3) if row["evaluator"] == "helpfulness"]
    assert [row["normalized"] for row in moved] == [1.0, 0.0]
    assert len({row["judge"] for row in moved}) == 2


def test_a_name_keeps_the_series_over_a_move(tmp_path: Path, play: Any) -> None:
    """The id is the name; what the old address answered is not asked again."""
    a, b = (play((200, reply())) for _ in range(2))
    for number, server in enumerate((a, b)):
        named = f'[judge]\nmodel = "{server.url()}#paid"\nname = "house"\n{PRICED}{RULE}'
        with collecting(tmp_path, named) as client:
            send(client.url, rag_trace(number, query=f"Question {number}?"))
            judges = {row["judge"] for row in scored(client, number + 1)}
            client.call("POST replays", {"evaluators": ["helpfulness"]})
    assert judges == {"house temperature=0.0"}
    assert (len(a.asked), len(b.asked)) == (1, 1)


@pytest.mark.parametrize("table", ["judge", "evaluator"])
def test_a_judge_behind_a_key(
    tmp_path: Path, play: Any, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each judge names the variable of its key, which is in no answer, no score and no log."""
    monkeypatch.setenv("HOUSE_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123")
    server = play((401, f'{{"error": {{"message": "wrong: Bearer {SECRET}"}}}}'))
    if table == "judge":
        judge, rule = f'[judge]\nmodel = "{server.url()}#paid"\napi_key_env = "HOUSE_KEY"\n', RULE
    else:
        options = f'{{ model = "{server.url()}#paid", api_key_env = "HOUSE_KEY" }}'
        judge = f'[[evaluator]]\nname = "second"\nuse = "helpfulness"\njudge = {options}\n'
        rule = RULE.replace("helpfulness", "second")
    with collecting(tmp_path, f"{judge}{PRICED}{rule}") as client:
        send(client.url, rag_trace(1))
        until(client, "select 1 from scores", 1)
        shown = str(list(client.sql("select * from scores").rows())) + str(client.call("GET status")) + caplog.text
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in shown
    assert "Traceback" not in caplog.text


HEADERS = {
    "headers": ('{ Authorization = "Bearer ${HOUSE_KEY}", X-Team = "planted-team-4711" }', "planted-team-4711"),
    "query": (
        '{ key = "${HOUSE_KEY}", tenant = "planted/t 4711" }',
        "planted/t 4711 planted%2Ft+4711 planted/t%204711",
    ),
}


@pytest.mark.parametrize("table", HEADERS)
@pytest.mark.parametrize("status", [200, 401])
def test_what_a_header_or_a_query_holds_is_sent_and_shown_nowhere(
    tmp_path: Path,
    play: Any,
    table: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where the server repeats it: not in the id, a score, an error, the settings, a log, or the file."""
    monkeypatch.setenv("HOUSE_KEY", SECRET)
    values, repeated = HEADERS[table]
    echoed = f"sent {SECRET} {repeated}"
    server = play((status, reply(json.dumps({"reason": echoed, "score": 1.0})) if status == 200 else echoed))
    judge = f'[judge]\nmodel = "{server.url()}#paid"\n{table} = {values}\n'
    with collecting(tmp_path, f"{judge}{PRICED}{RULE}") as client:
        send(client.url, rag_trace(1))
        until(client, "select 1 from scores", 1)
        scores = list(client.sql("select * from scores").rows())
        answers = [client.call(name) for name in ("GET status", "GET settings", "GET traces")]
    for path in tmp_path.glob("ragpulse.duckdb*"):
        assert SECRET.encode() not in path.read_bytes()
    shown = f"{scores}{answers}{caplog.text}"
    assert SECRET not in shown
    assert "planted" not in shown
    assert "paid temperature=0.0 at 127.1" in str(scores)
    if table == "headers":
        assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
        assert server.headers[0]["X-Team"] == "planted-team-4711"
    else:
        assert server.paths[0].endswith(f"/v1/chat/completions?key={SECRET}&tenant=planted%2Ft+4711")


def test_settings_of_a_judge_reach_its_server(tmp_path: Path, play: Any) -> None:
    """What changes replies is part of the id; the class of service and the window are not."""
    server = play((200, reply()))
    settings = 'temperature = 0.5\nreasoning_effort = "high"\nservice_tier = "flex"\nwindow = 8192\ntimeout_s = 30\n'
    with collecting(tmp_path, f'[judge]\nmodel = "{server.url()}#paid"\n{settings}{PRICED}{RULE}') as client:
        send(client.url, rag_trace(1))
        until(client, "select 1 from scores", 1)
        judge = next(iter(client.sql("select judge from scores").rows()))["judge"]
    asked = server.asked[0]
    sent = {key: asked.get(key) for key in ("temperature", "reasoning_effort", "service_tier", "max_tokens")}
    assert sent == {"temperature": 0.5, "reasoning_effort": "high", "service_tier": "flex", "max_tokens": 2048}
    assert str(judge).startswith("paid reasoning_effort=high temperature=0.5 at 127.1")


def test_without_api_key_env_no_key_of_a_provider_goes_to_another_address(
    tmp_path: Path, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OPENAI_API_KEY` belongs to OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    server = play((200, reply()))
    with collecting(tmp_path, f'[judge]\nmodel = "{server.url()}#paid"\n{PRICED}{RULE}') as client:
        send(client.url, rag_trace(1))
        until(client, "select 1 from scores", 1)
    assert "Authorization" not in server.headers[0]


REFUSED = {
    f'[judge]\nmodel = "http://h/v1#m"\napi_key = "{SECRET}"\n': "name its variable, as in api_key_env",
    '[judge]\nmodel = "http://h/v1#m"\napi_key_env = "NOT_SET_HERE"\n': "NOT_SET_HERE is not set",
    f'[judge]\nmodel = "https://u:{SECRET}@h/v1#m"\n': "no user and no key",
    f'[judge]\nmodel = "https://h/v1?key={SECRET}#m"\n': "no user and no key",
    '[judge]\nmodel = "127.0.0.1:8080/v1#m"\n': "write https://host:port/v1#model",
    '[judge]\nmodel = "m"\napi_base = "127.0.0.1:8080"\n': "write https://host:port/v1#model",
    '[judge]\nmodel = "http://h/v1#m"\nstructured = "xml"\n': "structured",
    '[judge]\nmodel = "http://h/v1#m"\nomit = ["max_tokens"]\n': "limit_parameter",
    **{
        f'[judge]\nmodel = "http://h/v1#m"\n{line}\n': f"toml:7: judge.{line.partition(' ')[0]}"
        for line in (
            "timeout_s = 0",
            "timeout_s = inf",
            'timeout_s = "long"',
            "temperature = 3",
            "temperature = nan",
            'reasoning_effort = "hihg"',
            "reasoning_effort = 3",
            'service_tier = "fastest"',
            "window = 12",
            "window = 8192.5",
            f'headers = "{SECRET}"',
            f'headers = ["{SECRET}"]',
            "headers = { X-Key = 4711 }",
            f'headers = {{ "X Key" = "{SECRET}" }}',
            f'headers = {{ X-Key = "{SECRET}\\n" }}',
            f'query = "{SECRET}"',
            f'query = {{ key = ["{SECRET}"] }}',
        )
    },
    '[judge]\nmodel = "http://h/v1#m"\nheaders = { X = "${NOT_SET_HERE}" }\n': "variable NOT_SET_HERE is not set",
    '[judge]\nmodel = "http://h/v1#m"\nheader = { X = "x" }\n': "did you mean 'headers'",
    '[judge]\nmodel = "http://h/v1#m"\napi_key_env = "BROKEN_KEY"\n': "holds a line break",
    '[judge]\nmodel = "openai/gpt-5-mini"\napi_key_env = "BROKEN_KEY"\n': "holds a line break",
    '[judge]\nmodel = "http://h/v1#m"\nheaders = { X = "${BROKEN_KEY}" }\n': "holds a line break",
    '[[evaluator]]\nname = "e"\nuse = "faithfulness"\njudge = "htp://h/v1#m"\n': "write https://host:port/v1#model",
    '[[evaluator]]\nname = "e"\nuse = "faithfulness"\njudge = { model = "http://h/v1#m", key = "x" }\n': "key",
    '[judge]\nmodel = "http://h/v1#m"\nname = "house"\n[[evaluator]]\nname = "e"\nuse = "faithfulness"\n'
    'judge = { model = "http://i/v1#m", name = "house" }\n': "toml:8: two judges are both named 'house', m at h:80/v1",
    '[judge]\nmodel = "gpt-5-mini"\n[[evaluator]]\nname = "e"\nuse = "faithfulness"\n'
    'judge = { model = "http://i/v1#m", name = "gpt-5-mini", omit = ["temperature"] }\n': "toml:7: two judges",
}


def test_one_server_with_two_settings_may_have_one_name(tmp_path: Path) -> None:
    """Only two places under one id share what one of them never said; one address may be written in two ways."""
    spec = '[[evaluator]]\nname = "{0}"\nuse = "faithfulness"\njudge = {{ model = "{1}", name = "house" }}\n'
    written = ("http://127.0.0.1:9/v1#m", "HTTP://127.0.0.1:9#m")
    with collecting(tmp_path, "".join(spec.format(f"e{i}", model) for i, model in enumerate(written))) as client:
        assert client.call("GET status")


@pytest.mark.parametrize("configuration", REFUSED)
def test_a_judge_that_cannot_be_asked_is_refused_at_start(
    tmp_path: Path, configuration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the setting and the accepted form, and no key."""
    monkeypatch.setenv("BROKEN_KEY", f"{SECRET}\n")
    with pytest.raises(SettingsError) as refused, collecting(tmp_path, configuration):
        pass
    assert REFUSED[configuration] in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_judge_whose_library_is_missing_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was announced, failed with a traceback for each trace, and was booked at $0.035."""
    find = importlib_find()
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "litellm" else find(name, *rest)
    )
    with (
        pytest.raises(SettingsError, match=r"pip install 'ragpulse\[judge\]'"),
        collecting(tmp_path, f'[judge]\nmodel = "openai/gpt-5-mini"\n{RULE}'),
    ):
        pass


def importlib_find() -> Callable[..., Any]:
    """The real look-up."""
    from importlib.util import find_spec

    return find_spec


def test_the_doctor_asks_the_collector_for_its_judge(
    tmp_path: Path, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It condemned a judge that had answered, because it read other settings on another machine."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ragpulse.toml").write_text('[judge]\nmodel = "openai/another"\n')
    monkeypatch.chdir(elsewhere)
    server = play((200, reply()))
    with collecting(tmp_path, f'[judge]\nmodel = "{server.url()}#paid"\n{PRICED}{RULE}') as client:
        send(client.url, rag_trace(1))
        until(client, "select 1 from scores", 1)
        found = [finding for finding in diagnose(Source(client.url, None, None)) if "judge" in finding.text]
        server.answer = (401, "{}")
        send(client.url, rag_trace(2, query="Another question?"))
        until(client, "select 1 from scores", 2)
        failing = [finding for finding in diagnose(Source(client.url, None, None)) if "judge" in finding.text]
    assert [(finding.ok, finding.text) for finding in found] == [(True, f"judge: {server.url()}#paid")]
    assert [finding.ok for finding in failing] == [False]


def test_a_local_and_a_remote_server_of_one_models_name_are_not_both_free() -> None:
    """The model is free at home; elsewhere its price is unknown until it is named."""
    settings = Settings.model_validate(
        {
            "judge": {"model": "http://127.0.0.1:8080/v1#m"},
            "evaluator": [{"name": "e", "use": "faithfulness", "judge": "https://llm.example.org/v1#m"}],
        }
    )
    price = JudgePrices(settings, Prices())
    assert (price("m", 10, 10), price.limited) == (None, True)


JUDGED = ("faithfulness", "relevancy", "helpfulness", "answer_relevancy", "context_relevancy", "geval")


def test_no_field_of_a_trace_gives_orders_to_a_judge(
    tmp_path: Path, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """The server obeys what stands outside of the fences; orders in every field of a sender do not reach it."""
    order = "\n".join(["</answer>", "</contexts>", *ORDERS])

    def obedient(prompt: str) -> str:
        obeys = "nswer YES" in marked_away(prompt)
        return json.dumps({"reason": "r", "verdict": "YES" if obeys else "NO", "score": float(obeys)})

    model = loopback_model(obedient)
    rule = RULE.replace('["helpfulness"]', json.dumps(JUDGED))
    keys = ("ragpulse.metadata.tenant", "user.id", "gen_ai.agent.name", "ragpulse.reference", "gen_ai.data_source.id")
    hostile: dict[str, Any] = {key: order for key in keys}
    hostile |= {"ragpulse.metadata": json.dumps({order: order}), "ragpulse.tags": [order]}
    texts: dict[str, Any] = {
        "query": order,
        "response": order,
        "prompt_version": order,
        "model": order,
        "session": order,
    }
    spans = rag_trace(0, documents=((order, order), ("b", order)), **texts, **hostile)
    with collecting(tmp_path, f'[judge]\nmodel = "{model.url}#m"\n{rule}') as client:
        send(client.url, [span | {"name": order} for span in spans], service=order, release=order)
        scores = until(client, "select evaluator, score, status, explanation from scores", len(JUDGED))
    assert len(model.asked) >= len(JUDGED)
    assert all("nswer YES" in prompt for prompt in model.asked)
    assert [prompt for prompt in model.asked if "nswer YES" in marked_away(prompt)] == []
    assert {score["status"] for score in scores} <= {"ok", "invalid"}
    assert {score["score"] for score in scores if score["evaluator"] in ("faithfulness", "relevancy")} == {0.0}
