"""What is read from results of genuine libraries: clients of OpenAI and Anthropic, LangChain, LlamaIndex, tables."""

import asyncio
import base64
import gc
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from aiohttp import web
from anthropic import Anthropic, AsyncAnthropic
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.schema import NodeWithScore, TextNode
from loopback import LoopbackModel
from openai import AsyncOpenAI, OpenAI
from pandas import DataFrame
from pyarrow import Table
from starlette.responses import HTMLResponse, JSONResponse, Response

import ragpulse
from ragpulse.testing import RecordedSpan, RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

SAID = "Paris is in France."
MESSAGES: list[Any] = [{"role": "user", "content": "Where is Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = None
"""What a reply says that calls a tool."""
USAGE: Any = {"include_usage": True}


@pytest.fixture(scope="module")
def model() -> Iterator[LoopbackModel]:
    """A model behind both clients."""
    running = LoopbackModel(lambda _: SAID)
    yield running
    running.close()


@pytest.fixture
def openai(model: LoopbackModel) -> Iterator[OpenAI]:
    """A genuine client."""
    with OpenAI(base_url=model.url, api_key="none") as client:
        yield client


@pytest.fixture
def anthropic(model: LoopbackModel) -> Iterator[Anthropic]:
    """A genuine client."""
    with Anthropic(base_url=model.url.removesuffix("/v1"), api_key="none") as client:
        yield client


def _function(name: str) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


Ask = Callable[[OpenAI, Anthropic], Any]
WHOLE: dict[str, tuple[Ask, str | None]] = {
    "openai chat": (lambda o, a: o.chat.completions.create(model="m", messages=MESSAGES), SAID),
    "openai chat, raw": (lambda o, a: o.chat.completions.with_raw_response.create(model="m", messages=MESSAGES), SAID),
    "openai chat, tool": (
        lambda o, a: o.chat.completions.create(model="m", messages=MESSAGES, tools=[_function("weather")]), CALL),
    "openai responses": (lambda o, a: o.responses.create(model="m", input="Where?"), SAID),
    "openai responses, tool": (
        lambda o, a: o.responses.create(
            model="m", input="Where?", tools=[{"type": "function", "name": "weather", "parameters": SCHEMA}]  # type: ignore[list-item]
        ), CALL),
    "anthropic": (lambda o, a: a.messages.create(model="m", messages=MESSAGES, max_tokens=9), SAID),
    "anthropic, raw": (
        lambda o, a: a.messages.with_raw_response.create(model="m", messages=MESSAGES, max_tokens=9), SAID),
    "anthropic, tool": (
        lambda o, a: a.messages.create(
            model="m", messages=MESSAGES, max_tokens=9, tools=[{"name": "weather", "input_schema": SCHEMA}]
        ), CALL),
}  # fmt: skip


def _assert_whole(span: RecordedSpan, said: str | None = SAID) -> None:
    """Text (none beside calls of tools) and every figure, from a stream that was read to its end or a whole reply."""
    seen = span.attributes
    assert (span.response, seen.get("ragpulse.response.missing_reason")) == (said, None if said else "tool_calls")
    assert (seen["gen_ai.usage.input_tokens"], seen["gen_ai.usage.output_tokens"]) == (120, 5)
    assert seen["gen_ai.response.model"] == "m"
    assert "ragpulse.ended_early" not in seen


@pytest.mark.parametrize("shape", WHOLE)
def test_whole_replies_of_the_clients(
    ragpulse_spans: RecordedSpans, openai: OpenAI, anthropic: Anthropic, shape: str
) -> None:
    """Plain, raw, and with calls of tools, which are recorded by name and arguments."""
    ask, said = WHOLE[shape]
    ragpulse.llm(name="call")(lambda question: ask(openai, anthropic))("Where is Paris?")
    span = ragpulse_spans.one("call")
    _assert_whole(span, said)
    if said is CALL:
        (message,) = json.loads(span.attributes["gen_ai.output.messages"])
        assert [(part["type"], part["name"]) for part in message["parts"]] == [("tool_call", "weather")]


STREAMS: dict[str, Ask] = {
    "openai chat": lambda o, a: o.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options=USAGE
    ),
    "openai chat, manager": lambda o, a: o.chat.completions.stream(
        model="m", messages=MESSAGES, stream_options=USAGE
    ),
    "openai responses": lambda o, a: o.responses.create(model="m", input="Where?", stream=True),
    "openai responses, manager": lambda o, a: o.responses.stream(model="m", input="Where?"),
    "anthropic": lambda o, a: a.messages.create(model="m", messages=MESSAGES, max_tokens=9, stream=True),
    "anthropic, manager": lambda o, a: a.messages.stream(model="m", messages=MESSAGES, max_tokens=9),
}  # fmt: skip


@pytest.mark.parametrize("shape", STREAMS)
def test_streams_of_the_clients(
    ragpulse_spans: RecordedSpans, openai: OpenAI, anthropic: Anthropic, shape: str
) -> None:
    """Events are read once, although the clients' own streams repeat each text in several of them."""
    made = []

    @ragpulse.llm(name="call")
    def call(question: str) -> Any:
        made.append(STREAMS[shape](openai, anthropic))
        return made[0]

    result = call("Where is Paris?")
    assert result is made[0]
    with result as stream:
        for _ in stream:
            pass
    _assert_whole(ragpulse_spans.one("call"))
    assert ragpulse_spans.one("call").attributes["gen_ai.response.time_to_first_chunk"] > 0


@pytest.mark.parametrize(
    ("shape", "read"),
    [
        ("anthropic, manager", lambda stream: "".join(stream.text_stream)),
        ("anthropic, manager", lambda stream: stream.get_final_text()),
        ("anthropic, manager", lambda stream: stream.get_final_message().content[0].text),
        ("openai chat, manager", lambda stream: stream.get_final_completion().choices[0].message.content),
        ("openai responses, manager", lambda stream: stream.get_final_response().output_text),
    ],
)  # fmt: skip
def test_streams_read_by_a_method_of_their_own(
    ragpulse_spans: RecordedSpans, openai: OpenAI, anthropic: Anthropic, shape: str, read: Callable[[Any], str]
) -> None:
    """However they read their source."""
    with ragpulse.llm(name="call")(lambda question: STREAMS[shape](openai, anthropic))("q") as stream:
        assert read(stream) == SAID
    _assert_whole(ragpulse_spans.one("call"))


def test_a_stream_may_be_looked_into_before_it_is_read(ragpulse_spans: RecordedSpans, openai: OpenAI) -> None:
    """The end of one iteration by `break` is not the stream's; another stream of the class is not recorded."""
    ask: Any = STREAMS["openai chat"]
    stream = ragpulse.llm(name="call")(lambda question: ask(openai, None))("q")
    for _ in ask(openai, None):
        assert next(iter(stream)).choices
        break
    assert len(ragpulse_spans) == 0
    list(stream)
    _assert_whole(ragpulse_spans.one("call"))


async def test_managers_of_the_async_clients(ragpulse_spans: RecordedSpans, model: LoopbackModel) -> None:
    """As the others, with `async with`."""
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        call = ragpulse.llm(name="openai")(
            lambda question: client.chat.completions.stream(model="m", messages=MESSAGES, stream_options=USAGE)
        )
        async with call("q") as stream:
            async for _ in stream:
                pass
    async with AsyncAnthropic(base_url=model.url.removesuffix("/v1"), api_key="none") as other:
        say = ragpulse.llm(name="anthropic")(
            lambda question: other.messages.stream(model="m", messages=MESSAGES, max_tokens=9)
        )
        async with say("q") as texts:
            assert "".join([text async for text in texts.text_stream]) == SAID
    _assert_whole(ragpulse_spans.one("openai"))
    _assert_whole(ragpulse_spans.one("anthropic"))


def test_a_manager_left_early_keeps_its_part(
    ragpulse_spans: RecordedSpans, openai: OpenAI, anthropic: Anthropic
) -> None:
    """Marked, with the text that was read."""
    with ragpulse.llm(name="call")(lambda question: STREAMS["anthropic, manager"](openai, anthropic))("q") as stream:
        assert next(iter(stream.text_stream)) == "Paris"
    span = ragpulse_spans.one("call")
    assert (span.response, span.attributes["ragpulse.ended_early"]) == ("Paris", True)


class Turn(NamedTuple):
    """What an application returns."""

    answer: str
    sources: list[str]


CONVERSATION = [HumanMessage("Where is Paris?"), ToolMessage("found", tool_call_id="t"), AIMessage(SAID)]
ANSWERS: dict[str, tuple[Any, str | None]] = {
    "sentences": (["Sentence one.", "Sentence two."], "Sentence one.\nSentence two."),
    "a text in JSON": ('["a", "b"]', '["a", "b"]'),
    "a state of LangGraph": ({"messages": CONVERSATION, "context": []}, SAID),
    "messages of LangChain": (CONVERSATION, SAID),
    "messages as dicts": ([*MESSAGES, {"role": "assistant", "content": SAID}], SAID),
    "LlamaIndex's chat engine": (AgentChatResponse(response=SAID), SAID),
    "LlamaIndex's chat model": (ChatResponse(message=ChatMessage(SAID, role="assistant")), SAID),
    "Haystack's pipeline": ({"search": {"documents": []}, "llm": {"replies": [SAID], "meta": [{}]}}, SAID),
    "an answer with its sources": ((SAID, [Document(page_content="Paris.")]), SAID),
    "a response of FastAPI": (JSONResponse({"answer": SAID, "took": 3}), SAID),
    "a response of aiohttp": (web.json_response({"answer": SAID, "took": 3}), SAID),
    "a text of aiohttp": (web.Response(text=SAID), SAID),
    "a file of aiohttp": (web.Response(body=b"{}", content_type="application/pdf"), None),
    "a response of Starlette": (Response(SAID), SAID),
    "a file of Starlette": (Response(b"{}", media_type="application/pdf"), None),
    "a question beside its answer": ({"message": "Where is Paris?", "status": "ok", "answer": SAID}, SAID),
    "a passage beside the answer": ({"content": "Paris.", "response": SAID}, SAID),
    "an answer of lines": ({"answer": ["Sentence one.", "Sentence two."]}, "Sentence one.\nSentence two."),
    "an answer below a name": ({"result": {"answer": SAID}}, SAID),
    "a named tuple": (Turn(SAID, ["Paris."]), SAID),
    "a score and an answer": ((0.9, SAID), SAID),
    "an answer and a status": (({"answer": SAID}, 200), SAID),
    "no answer and an error": ((None, "timed out"), None),
    "a refusal of OpenAI": ({"choices": [{"message": {"content": None, "refusal": SAID}}]}, SAID),
    "parts of a message": ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": SAID}], SAID),
    "bytes": (SAID.encode(), SAID),
    "bytes that are no text": (b"\xff\xfe", None),
    "HTML": (HTMLResponse(SAID), SAID),
    "fields without an answer": ({"city": "Paris", "size": 2}, None),
}  # fmt: skip


@pytest.mark.parametrize("shape", ANSWERS)
@pytest.mark.parametrize("kind", ["rag", "llm", "agent"])
def test_answers_in_the_results_of_frameworks(ragpulse_spans: RecordedSpans, shape: str, kind: str) -> None:
    """The whole answer and nothing but it."""
    result, said = ANSWERS[shape]
    getattr(ragpulse, kind)(name="call")(lambda question: result)("Where is Paris?")
    assert ragpulse_spans.one("call").response == said


@pytest.mark.anyio
async def test_a_function_that_returns_a_coroutine_is_recorded_as_async(
    ragpulse_spans: RecordedSpans, model: LoopbackModel
) -> None:
    """The methods of OpenAI's asynchronous client are no coroutine functions; neither are most wrappers of one."""
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        create = ragpulse.llm(name="call")(client.chat.completions.create)
        reply = await create(model="m", messages=MESSAGES)
        assert reply.choices[0].message.content == SAID
        _assert_whole(ragpulse_spans.one("call"))
        ragpulse_spans.clear()
        async for _ in await create(model="m", messages=MESSAGES, stream=True, stream_options=USAGE):
            pass
    _assert_whole(ragpulse_spans.one("call"))


@pytest.mark.anyio
async def test_a_coroutine_that_fails_is_an_error(ragpulse_spans: RecordedSpans) -> None:
    """The exception is the application's own, and the span has ended."""

    async def failing(question: str) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await ragpulse.llm(name="call")(lambda question: failing(question))("Where is Paris?")
    assert ragpulse_spans.one("call").error == "ValueError"


@pytest.mark.parametrize("kind", ["rag", "llm", "agent", "tool"])
def test_the_name_of_a_type_is_no_response(
    ragpulse_spans: RecordedSpans, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Nothing is recorded of an object that is not understood but the reason, which the log has once."""
    call = getattr(ragpulse, kind)(name="call")(lambda question: object())
    with caplog.at_level(logging.WARNING, "ragpulse"):
        call("q")
        call("q")
    reason = (
        "call returned builtins.object, in which ragpulse finds no response; "
        f"write @ragpulse.{kind}(response=lambda result: ...)"
    )
    assert [(span.response, span.attributes["ragpulse.result.unread"]) for span in ragpulse_spans] == [
        (None, reason)
    ] * 2
    assert [record.message for record in caplog.records] == [f"ragpulse: {reason}"]


def _llama_index_chunks(chat: bool) -> Iterator[Any]:
    so_far = ""
    for word in ("Paris ", "is in ", "France."):
        so_far += word
        message = ChatMessage(so_far, role="assistant")
        yield ChatResponse(message=message, delta=word) if chat else CompletionResponse(text=so_far, delta=word)


ITEMS: dict[str, tuple[list[Any], str]] = {
    "LlamaIndex's chat model": (list(_llama_index_chunks(chat=True)), SAID),
    "LlamaIndex's completion": (list(_llama_index_chunks(chat=False)), SAID),
    "chunks of LangGraph": ([(AIMessageChunk("Paris "), {"node": "a"}), (AIMessageChunk("is."), {})], "Paris is."),
    "modes of LangGraph": (
        [("updates", {"a": {"answer": "x"}}), ("messages", (AIMessageChunk("Paris "), {})),
         ("messages", (AIMessageChunk("is."), {}))], "Paris is."),
    "a refusal of OpenAI": (
        [{"type": "response.refusal.delta", "delta": word} for word in ("I ", "cannot.")], "I cannot."),
    "words that look like SSE": (["data: ", "what", " is given"], "data: what is given"),
    "SSE, texts": (["data: Paris \n\n", "data: is.\n\n", "data: [DONE]\n\n"], "Paris is."),
    "SSE, bytes and JSON": (
        [b'event: token\ndata: {"text": "Paris "}\n\n', b'data: {"token": "is."}\n\n'], "Paris is."),
    "SSE, chunks of OpenAI": (['data: {"choices": [{"delta": {"content": "Paris"}}]}\n\n', ": ping\n\n"], "Paris"),
    "lines of JSON": (
        ['{"type": "ids", "ids": [1]}\n', '{"token": "Paris "}\n', '{"message": {"content": "is."}}\n'], "Paris is."),
    "lines of JSON, bytes": ([b'{"chunk": "Paris "}\n', b'{"response": "is.", "done": true}\n'], "Paris is."),
    "JSON that a model writes": (['{"text":', ' "Paris"}\n', '{"text": 1}\n'], '{"text": "Paris"}\n{"text": 1}\n'),
    "texts so far": (["", "Paris", "Paris ", "Paris is.", "Paris is."], "Paris is."),
    "two texts so far": (["Paris is in", "Paris is in France."], SAID),
    "words that repeat": (["no", "no", "nsense"], "nononsense"),
    "two words that begin alike": (["no", "nobody"], "nonobody"),
    "texts with a label": ([("status", "search"), ("token", "Paris "), ("content", "is."), ("done", "")], "Paris is."),
    "lists with a label": ([["token", "Paris "], ["token", "is."], ["sources", [{"id": 1}]]], "Paris is."),
    "texts under a label": ([{"token": "Paris "}, {"chunk": "is."}, {"token": ""}], "Paris is."),
    "texts with their figures": ([("Paris ", {"n": 1}), ("is.", {"n": 2})], "Paris is."),
    "SSE, sse-starlette": ([{"event": "token", "data": "Paris "}, {"data": "is."}], "Paris is."),
}  # fmt: skip


@pytest.mark.parametrize("shape", ITEMS)
@pytest.mark.parametrize("kind", ["rag", "llm"])
def test_streams_of_frameworks_are_joined_once(ragpulse_spans: RecordedSpans, shape: str, kind: str) -> None:
    """Neither doubled by what was said so far, nor with the frames of the protocol."""
    items, said = ITEMS[shape]
    assert list(getattr(ragpulse, kind)(name="call")(lambda question: iter(items))("q")) == items
    assert ragpulse_spans.one("call").response == said


async def test_events_of_langchain_are_read_for_their_text(ragpulse_spans: RecordedSpans) -> None:
    """`astream_events` repeats each text in the events of the parts above and at the end."""
    chain = RunnableLambda(lambda question: question) | GenericFakeChatModel(messages=iter([AIMessage(SAID)]))
    stream = ragpulse.rag(name="call")(lambda question: chain.astream_events(question, version="v2"))
    assert [event["event"] async for event in stream("Where?")].count("on_chat_model_stream") > 1
    assert ragpulse_spans.one("call").response == SAID


@pytest.mark.parametrize("kind", ["rag", "llm", "agent"])
def test_a_stream_that_is_not_understood_has_no_response(ragpulse_spans: RecordedSpans, kind: str) -> None:
    """Null with the reason, not an empty text."""
    list(getattr(ragpulse, kind)(name="call")(lambda question: iter([object()]))("q"))
    span = ragpulse_spans.one("call")
    assert span.response is None
    assert "call returned builtins.object" in span.attributes["ragpulse.result.unread"]


def test_calls_of_tools_in_streams(ragpulse_spans: RecordedSpans) -> None:
    """OpenAI sends them in pieces, Anthropic in blocks of JSON."""
    pieces = [{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": '{"city":'}}]
    rest = [{"index": 0, "function": {"arguments": ' "Paris"}'}}]
    openai = [{"choices": [{"delta": {"tool_calls": part}}]} for part in (pieces, rest)]
    block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    anthropic: list[dict[str, Any]] = [{"type": "content_block_start", "index": 1, "content_block": block}]
    for part in ('{"city":', ' "Paris"}'):
        delta = {"type": "input_json_delta", "partial_json": part}
        anthropic.append({"type": "content_block_delta", "index": 1, "delta": delta})
    for chunks in (openai, anthropic):
        list(ragpulse.llm(name="call")(lambda question, chunks=chunks: iter(chunks))("q"))
    for span in ragpulse_spans:
        (message,) = json.loads(span.attributes["gen_ai.output.messages"])
        assert message["parts"] == [
            {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris"}}
        ]  # fmt: skip
        assert (span.response, span.attributes["ragpulse.response.missing_reason"]) == (CALL, "tool_calls")


@pytest.mark.parametrize(
    "first",
    [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"type": "response.created", "response": {"id": "r1", "output": []}},
        "",
        ": ping\n\n",
    ],
)
def test_the_time_to_the_first_token_is_that_of_the_first_text(ragpulse_spans: RecordedSpans, first: Any) -> None:
    """Neither a chunk with a role only nor a ping counts; a stream without text has no such time."""

    @ragpulse.llm
    def stream(question: str) -> Iterator[Any]:
        yield from (first, first, "Paris")

    part = stream("q")
    next(part)
    next(part)
    part.close()  # type: ignore[attr-defined]
    list(stream("q"))
    times = ["gen_ai.response.time_to_first_chunk" in span.attributes for span in ragpulse_spans]
    assert times == [False, True]


KEY = UUID("12345678-1234-5678-1234-567812345678")
HITS = {"hits": {"hits": [{"_id": "e1", "_score": 1.5, "_source": {"title": "Cities", "passage": "Paris is a city."}}]}}


def _sqlite_rows() -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute("SELECT 'q1' AS id, 'Paris.' AS passage, 0.5 AS score").fetchall()


TABLES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "a UUID as the id": ([{"id": KEY, "text": "Paris."}], [{"id": str(KEY), "score": None, "content": "Paris."}]),
    "a data frame": (
        DataFrame({"id": [7, 8], "text": ["Paris.", "Rome."], "score": [0.5, 0.25]}),
        [{"id": "7", "score": 0.5, "content": "Paris."}, {"id": "8", "score": 0.25, "content": "Rome."}]),
    "a data frame with names of its own": (
        DataFrame({"key": ["k"], "words": ["Paris is a city."], "distance": [0.5]}),
        [{"id": "k", "score": None, "content": "Paris is a city.", "metadata": {"distance": 0.5}}]),
    "Elasticsearch": (
        HITS, [{"id": "e1", "score": 1.5, "content": "Paris is a city.", "metadata": {"title": "Cities"}}]),
    "hits of Elasticsearch": (
        HITS["hits"]["hits"],
        [{"id": "e1", "score": 1.5, "content": "Paris is a city.", "metadata": {"title": "Cities"}}]),
    "a table of Arrow": (
        Table.from_pydict({"id": [7], "text": ["Paris."]}), [{"id": "7", "score": None, "content": "Paris."}]),
    "hits of two queries": (
        [[{"id": 1, "entity": {"passage": "Paris."}}, {"id": 2, "text": "Rome."}], [{"id": 3, "text": "Bonn."}]],
        [{"id": "1", "score": None, "content": "Paris."}, {"id": "2", "score": None, "content": "Rome."},
         {"id": "3", "score": None, "content": "Bonn."}]),
    "rows": ([("r1", "Paris is a city.", 0.5)], [{"id": "r1", "score": 0.5, "content": "Paris is a city."}]),
    "rows with a number as the id": ([(3, "Paris.", 0.5)], [{"id": "3", "score": 0.5, "content": "Paris."}]),
    "rows of two": ([("r1", "Paris is a city.")], [{"id": "r1", "score": None, "content": "Paris is a city."}]),
    "rows of sqlite3": (_sqlite_rows(), [{"id": "q1", "score": 0.5, "content": "Paris."}]),
    "id to text": ({"m1": "Paris.", "m2": "Rome."},
                   [{"id": "m1", "score": None, "content": "Paris."}, {"id": "m2", "score": None, "content": "Rome."}]),
    "one document": ({"text": "Paris.", "id": "d"}, [{"id": "d", "score": None, "content": "Paris."}]),
    "ids alone": ([4, 5], [{"id": "4", "score": None}, {"id": "5", "score": None}]),
    "LlamaIndex nodes": ([NodeWithScore(node=TextNode(text="Paris.", id_="n"), score=0.5)],
                         [{"id": "n", "score": 0.5, "content": "Paris."}]),
}  # fmt: skip


@pytest.mark.parametrize("shape", TABLES)
def test_contexts_in_tables_and_search_engines(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """Id, score and text, whatever the columns are called."""
    result, contexts = TABLES[shape]
    ragpulse.retriever(name="search")(lambda query: result)("q")
    assert ragpulse_spans.one("search").contexts == contexts


COHERE = SimpleNamespace(
    results=[SimpleNamespace(index=1, relevance_score=0.9), SimpleNamespace(index=0, relevance_score=0.1)]
)


@pytest.mark.parametrize(
    "ranked", [COHERE, [{"corpus_id": 1, "score": 0.9}, {"corpus_id": 0, "score": 0.1}], [(1, 0.9), (0, 0.1)]]
)
def test_a_reranker_that_names_places_keeps_the_texts(ragpulse_spans: RecordedSpans, ranked: Any) -> None:
    """Index and score, as Cohere returns them, of the documents that the function was given."""

    @ragpulse.reranker
    def rerank(query: str, docs: list[str]) -> Any:
        found = ranked
        docs.clear()
        return found

    rerank("q", ["Rome.", "Paris."])
    assert ragpulse_spans.one("rerank").contexts == [
        {"score": 0.9, "content": "Paris."}, {"score": 0.1, "content": "Rome."}
    ]  # fmt: skip


def test_a_retriever_that_is_not_understood_says_so_once(
    ragpulse_spans: RecordedSpans, caplog: pytest.LogCaptureFixture
) -> None:
    """The type and the line to write, in the log and on the span; nothing found is no such case."""
    search = ragpulse.retriever(name="search")(lambda query: query)
    with caplog.at_level(logging.WARNING, "ragpulse"):
        for result in (SimpleNamespace(rows=1), [SimpleNamespace(rows=1)], {"error": "timeout"}, [], None):
            search(result)
    reason = "in which ragpulse finds no contexts; write @ragpulse.retriever(contexts=lambda result: ...)"
    found = [span.attributes.get("ragpulse.result.unread") for span in ragpulse_spans]
    assert found == [
        f"search returned types.SimpleNamespace, {reason}",
        f"search returned builtins.list, {reason}",
        f"search returned builtins.dict, {reason}",
        None,
        None,
    ]
    assert len(caplog.records) == 1


def test_contexts_in_streams(ragpulse_spans: RecordedSpans) -> None:
    """Texts and documents, one by one; objects that are not understood say so."""
    for name, items in {"texts": ["Paris.", "Rome."], "rows": [("d", "Paris.", 0.5)], "objects": [object()]}.items():
        list(ragpulse.retriever(name=name)(lambda query, items=items: iter(items))("q"))
    texts, rows, objects = ragpulse_spans
    assert [context.text for context in texts.contexts] == ["Paris.", "Rome."]
    assert rows.contexts == [{"id": "d", "score": 0.5, "content": "Paris."}]
    assert (objects.contexts, objects.response) == ([], None)
    assert "returned builtins.object, in which" in objects.attributes["ragpulse.result.unread"]


def test_inline_files_leave_a_placeholder(ragpulse_spans: RecordedSpans) -> None:
    """Media type, size and hash of an image in a message or a text; never base64, cut or whole."""
    data = base64.b64encode(b"\x89PNG" + bytes(300_000)).decode()
    url = f"data:image/png;base64,{data}"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "image", "source": source}]
    ragpulse.llm(name="see")(lambda messages: f"![it]({url})")([{"role": "user", "content": parts}])
    ragpulse.retriever(name="search")(lambda query: [f"![small](data:image/gif;base64,{data[:400]}) and text"])(url)
    shown = "<image/png, 300004 bytes, sha256 "
    seen = ragpulse_spans.one("see").attributes
    assert seen["gen_ai.input.messages"].count(shown) == 2
    assert seen["output.value"].startswith(f"![it]({shown}")
    (context,) = ragpulse_spans.one("search").contexts
    assert context["content"].endswith(") and text")
    assert "<image/gif, 300 bytes, sha256 " in context["content"]
    assert not any(data[:40] in json.dumps(span.attributes) for span in ragpulse_spans)


def test_a_stream_that_is_garbage_keeps_what_was_read(ragpulse_spans: RecordedSpans) -> None:
    """In a cycle finalizers run in any order; the text has none."""
    stream = ragpulse.rag(name="call")(lambda question: (text for text in ["Paris ", "is."]))("q")
    next(stream)
    cycle: list[Any] = [stream]
    cycle.append(cycle)
    del stream, cycle
    gc.collect()
    span = ragpulse_spans.one("call")
    assert (span.response, span.attributes["ragpulse.ended_early"]) == ("Paris ", True)


async def test_a_cancelled_call_is_marked_and_no_error(ragpulse_spans: RecordedSpans) -> None:
    """A coroutine and a stream, both below a root that is cancelled with them."""

    @ragpulse.llm
    async def stream(question: str) -> Any:
        yield "Paris"
        await asyncio.Event().wait()

    @ragpulse.rag
    async def answer(question: str) -> str:
        return "".join([text async for text in stream(question)])

    task = asyncio.create_task(answer("q"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(span.error, span.attributes.get("ragpulse.ended_early")) for span in ragpulse_spans] == [(None, True)] * 2
    assert ragpulse_spans.one("stream").response == "Paris"
