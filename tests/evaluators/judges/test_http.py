"""The plain OpenAI-compatible judge over real sockets."""

import asyncio
from typing import Any

import pytest

from ragpulse_evaluators import Case, HTTPJudge, evaluate
from ragpulse_evaluators.errors import ConfigurationError, JudgeError

ASK = [{"role": "user", "content": "hello"}]


async def test_an_answer_carries_text_tokens_and_the_prompt(chat_server: Any, complete: Any) -> None:
    """One call returns what the server said, with tokens as the server counted them."""
    server = await chat_server(lambda body: complete("YES"))
    async with HTTPJudge(server.base, "tiny") as judge:
        [call] = await judge.ask(ASK)
    assert (call.completion, call.input_tokens, call.output_tokens, call.prompt) == ("YES", 11, 3, "hello")
    assert server.bodies[0] == {"model": "tiny", "messages": ASK, "temperature": 0.0, "max_tokens": 4096}
    assert (call.sampling, call.finish_reason) == ({"temperature": 0.0, "max_tokens": 4096}, "stop")


async def test_connections_are_kept_and_n_samples_are_n_questions(chat_server: Any, complete: Any) -> None:
    """Questions in turn share a connection; three samples are asked three times."""
    server = await chat_server(lambda body: complete("1"))
    async with HTTPJudge(server.base, "tiny") as judge:
        await judge.ask(ASK)
        await judge.ask(ASK)
        assert server.connections == 1
        assert len(await judge.ask(ASK, n=3)) == 3


async def test_a_connection_closed_by_the_server_is_replaced(chat_server: Any, complete: Any) -> None:
    """A server that drops kept-alive connections costs a new one, not an error."""
    server = await chat_server(lambda body: complete("1"), close_after_each=True)
    async with HTTPJudge(server.base, "tiny") as judge:
        await judge.ask(ASK)
        assert (await judge.ask(ASK))[0].completion == "1"


async def test_logprobs_of_the_first_token_are_read(chat_server: Any, complete: Any) -> None:
    """Candidates of the first completion token come with their log-probabilities."""
    top = [{"token": "4", "logprob": -0.1}, {"token": "5", "logprob": -2.0}]
    logprobs = {"content": [{"token": "4", "logprob": -0.1, "top_logprobs": top}]}
    server = await chat_server(lambda body: complete("4", logprobs=logprobs))
    async with HTTPJudge(server.base, "tiny", api_key="k") as judge:
        [call] = await judge.ask(ASK, logprobs=True)
    assert call.logprobs == {"4": -0.1, "5": -2.0}
    assert server.bodies[0]["top_logprobs"] == 20
    assert "Authorization: Bearer k" in server.headers[0]


@pytest.mark.parametrize(
    ("answer", "retriable"), [((500, "boom"), True), ((200, "no json"), False), ((200, "{}"), False)]
)
async def test_a_bad_answer_is_a_judge_error(chat_server: Any, answer: tuple[int, str], retriable: bool) -> None:
    """A failing server is asked again; a body that is no completion would be the same the next time."""
    server = await chat_server(lambda body: answer)
    async with HTTPJudge(server.base, "tiny") as judge:
        with pytest.raises(JudgeError) as raised:
            await judge.ask(ASK)
    assert raised.value.retriable is retriable


async def test_chunked_replies_are_joined() -> None:
    """A server that streams its body in chunks is understood."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"choices":[{"message":{"content":"hi"}}]}'
        parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:]))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, HTTPJudge(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", "tiny") as judge:
        assert (await judge.ask(ASK))[0].completion == "hi"


async def test_a_proxy_of_the_environment_is_not_used_on_this_machine(
    chat_server: Any, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy cannot reach loopback servers; questions to them go there directly."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = await chat_server(lambda body: complete("YES"))
    async with HTTPJudge(server.base, "tiny") as judge:
        assert (await judge.ask(ASK))[0].completion == "YES"


async def test_a_reply_above_32_mb_is_refused(chat_server: Any, complete: Any) -> None:
    """Reading stops at the limit, so that a server cannot fill the memory."""
    server = await chat_server(lambda body: complete("a" * 33 * 1024 * 1024))
    async with HTTPJudge(server.base, "tiny") as judge:
        with pytest.raises(JudgeError, match="larger than 32 MB"):
            await judge.ask(ASK)


async def test_nobody_listening_is_a_judge_error_and_a_bad_address_a_configuration_error() -> None:
    """A refused connection names model and address; an address without scheme is refused at once."""
    with pytest.raises(JudgeError, match=r"tiny at 127\.0\.0\.1:9"):
        await HTTPJudge("http://127.0.0.1:9/v1", "tiny").ask(ASK)
    with pytest.raises(ConfigurationError):
        HTTPJudge("127.0.0.1:9", "tiny")


async def test_a_batch_leaves_no_connection_open(chat_server: Any, complete: Any) -> None:
    """Connections are shared within a batch and dropped after it; the judge can be asked again."""
    server = await chat_server(lambda body: complete("YES"))
    cases = [Case(response=f"r{i}", contexts=["c"]) for i in range(12)]
    for _ in range(2):
        found = await evaluate(cases, "faithfulness", judge=f"{server.base}#tiny", concurrency=3)
        assert all(result.score == 1.0 for result in found["faithfulness"])
    assert server.connections == 6
    assert {body["model"] for body in server.bodies} == {"tiny"}
