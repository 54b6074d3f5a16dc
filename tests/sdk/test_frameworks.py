"""Decorated functions inside instrumented frameworks: one trace, each span below the run that encloses it."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever as LlamaRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import ragpulse
from ragpulse_collector.conventions.dedupe import Node, token_spans

from .conftest import Collector, Received


@pytest.fixture(params=["own provider", "the application's provider"])
def pulse(request: pytest.FixtureRequest, collector: Collector) -> Iterator[Collector]:
    """Both frameworks are instrumented, on our provider or on the application's."""
    provider = None if request.param == "own provider" else TracerProvider()
    ragpulse.configure("tests", endpoint=collector.url, tracer_provider=provider)
    instrumentors = (LangChainInstrumentor(), LlamaIndexInstrumentor())
    for each in instrumentors:
        each.instrument(tracer_provider=provider or ragpulse.tracer_provider())
    ragpulse.span(name="first")(lambda: "")()  # the first call chooses the provider
    ragpulse.flush(timeout=60)
    collector.spans.clear()
    yield collector
    for each in instrumentors:
        each.uninstrument()
    ragpulse.shutdown(timeout=60)


def _model() -> GenericFakeChatModel:
    said = AIMessage(
        "yes",
        usage_metadata={"input_tokens": 120, "output_tokens": 5, "total_tokens": 125},
        response_metadata={"model_name": "m"},
    )
    return GenericFakeChatModel(messages=iter([said] * 9))


@ragpulse.llm
def say(question: Any) -> Any:
    """A model call that returns the model's message."""
    return _model().invoke(str(question))


@ragpulse.llm
def words(question: Any) -> str:
    """A model call that returns a text only."""
    return str(_model().invoke(str(question)).content)


@ragpulse.llm
async def asay(question: Any) -> Any:
    """As `say`."""
    return await _model().ainvoke(str(question))


@tool
@ragpulse.tool
def weather(city: str) -> str:
    """The weather in a city, by a model."""
    return words(city)


@ragpulse.retriever
def look(query: str) -> list[str]:
    """A search."""
    return ["Paris is in France."]


class Search(BaseRetriever):
    """A retriever of the application."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document(page_content=text) for text in look(query)]


def _awaited(chain: Runnable[Any, Any]) -> Callable[[str], Any]:
    return lambda question: asyncio.run(chain.ainvoke(question))


def _tree(spans: list[Received]) -> dict[str, str]:
    """Name of each span → that of its parent."""
    names = {span.id: span.name.rpartition(".")[2] for span in spans}
    return {names[span.id]: names.get(span.parent, "") for span in spans}


def _tokens(spans: list[Received]) -> int:
    """The input tokens of the whole trace, by the collector's rule."""
    counts = {
        span.id: span.attributes.get("gen_ai.usage.input_tokens") or span.attributes.get("llm.token_count.prompt")
        for span in spans
    }
    nodes = [
        Node(
            span.id,
            span.parent or None,
            span.message.start_time_unix_nano,
            span.attributes["openinference.span.kind"].lower(),
            span.attributes.get("gen_ai.response.id"),
            counts[span.id] is not None,
        )
        for span in spans
    ]
    return sum(counts[number] or 0 for number in token_spans(nodes))


def _step(function: Any, name: str) -> Runnable[Any, Any]:
    return RunnableLambda(function, name=name)


NESTED: dict[str, tuple[Callable[[str], Any], int, dict[str, str]]] = {
    "chain": (_step(say, "A").invoke, 120, {"A": "", "say": "A", "GenericFakeChatModel": "say"}),
    "chain, text only": (_step(words, "A").invoke, 120, {"words": "A", "GenericFakeChatModel": "words"}),
    "steps": (
        (_step(lambda question: question, "A") | _step(say, "B")).invoke, 120,
        {"A": "RunnableSequence", "B": "RunnableSequence", "say": "B", "GenericFakeChatModel": "say"}),
    "parallel": (
        RunnableParallel(a=_step(say, "A"), b=_step(words, "B")).invoke, 240,
        {"A": "RunnableParallel<a,b>", "B": "RunnableParallel<a,b>", "say": "A", "words": "B"}),
    "asynchronous": (_awaited(_step(asay, "A")), 120, {"asay": "A", "GenericFakeChatModel": "asay"}),
    "asynchronous, parallel": (
        _awaited(RunnableParallel(a=_step(asay, "A"), b=_step(say, "B"))), 240, {"asay": "A", "say": "B"}),
    "batch": (lambda question: _step(say, "A").batch([question]), 120, {"say": "A"}),
    "stream": (lambda question: list(_step(say, "A").stream(question)), 120, {"say": "A"}),
    "tool": (weather.invoke, 120, {"weather": "weather", "words": "weather", "GenericFakeChatModel": "words"}),
    "function in a function": (
        _step(ragpulse.span(name="outer")(say), "A").invoke, 120, {"outer": "A", "say": "outer"}),
    "chain in a function in a chain": (
        _step(ragpulse.span(name="outer")(_step(say, "B").invoke), "A").invoke, 120,
        {"outer": "A", "B": "outer", "say": "B"}),
    "undecorated": (_step(lambda question: _model().invoke(question), "A").invoke, 120, {"GenericFakeChatModel": "A"}),
}  # fmt: skip


@pytest.mark.parametrize("rooted", [False, True], ids=["without a root", "below a root"])
@pytest.mark.parametrize("shape", NESTED)
def test_a_decorated_function_is_below_the_current_run(pulse: Collector, shape: str, rooted: bool) -> None:
    """And a run within it is below the function: its tokens count once."""
    run, tokens, parents = NESTED[shape]
    (ragpulse.rag(name="root")(run) if rooted else run)("Paris")
    ragpulse.flush(timeout=60)
    tree = _tree(pulse.spans)
    assert len({span.trace for span in pulse.spans}) == 1
    assert {name: tree[name] for name in parents} == {
        name: above or ("root" if rooted else "") for name, above in parents.items()
    }
    assert _tokens(pulse.spans) == tokens


def test_code_within_a_retriever_is_below_it(pulse: Collector) -> None:
    """LangChain's own context does not name the run of a retriever or a model."""
    ragpulse.rag(name="root")(Search().invoke)("q")
    ragpulse.flush(timeout=60)
    assert _tree(pulse.spans) == {"look": "Search", "Search": "root", "root": ""}


def test_code_between_two_items_of_a_chain_is_not_in_it(pulse: Collector) -> None:
    """The chain is open, and does not run."""
    for _ in _step(lambda question: question, "A").stream("q"):
        look("q")
    ragpulse.flush(timeout=60)
    assert _tree(pulse.spans)["look"] == ""


class Llama(CustomLLM):
    """A model of LlamaIndex with a decorated function in it."""

    @property
    def metadata(self) -> LLMMetadata:
        """Nothing special."""
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Completes by another model."""
        return CompletionResponse(text=words(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        """Is not used."""


class LlamaSearch(LlamaRetriever):
    """A retriever of LlamaIndex with a decorated function in it."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text), score=0.5) for text in look(query_bundle.query_str)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the instrumentation, whose span would be lost
@pytest.mark.parametrize("rooted", [False, True], ids=["without a root", "below a root"])
def test_decorated_functions_are_below_the_steps_of_llama_index(pulse: Collector, rooted: bool) -> None:
    """Its instrumentation makes its spans current."""
    engine = RetrieverQueryEngine.from_args(LlamaSearch(), llm=Llama())
    pulse.spans.clear()
    (ragpulse.rag(name="root")(engine.query) if rooted else engine.query)("Where is Paris?")
    ragpulse.flush(timeout=60)
    tree = _tree(pulse.spans)
    assert len({span.trace for span in pulse.spans}) == 1
    assert tree["look"] == "_retrieve"
    assert tree["words"] in ("complete", "predict")
    assert tree["GenericFakeChatModel"] == "words"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the instrumentation, whose span would be lost
@pytest.mark.parametrize("streams", [False, True], ids=["achat", "astream_chat"])
def test_a_chat_of_llama_index_is_one_trace(pulse: Collector, streams: bool) -> None:
    """Its answer is written to the memory by a task of its own, which may end after the answer was read."""

    async def ask() -> None:
        memory = ChatMemoryBuffer(token_limit=99, tokenizer_fn=str.split)
        engine = ContextChatEngine.from_defaults(LlamaSearch(), llm=MockLLM(max_tokens=4), memory=memory)
        answer = await ragpulse.rag(name="root")(engine.astream_chat if streams else engine.achat)("Where is Paris?")
        if streams:
            assert [text async for text in answer.async_response_gen()]

    for _ in range(2):
        pulse.spans.clear()
        asyncio.run(ask())
        ragpulse.flush(timeout=60)
        assert len({span.trace for span in pulse.spans}) == 1
        assert len(pulse.spans) > 3


def test_requests_in_threads_do_not_share_a_run(pulse: Collector) -> None:
    """The run of one request never is above a function of another."""
    chain = _step(say, "A")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(chain.invoke, "abcdefgh"))
    ragpulse.flush(timeout=60)
    assert len({span.trace for span in pulse.spans}) == 8
    assert len(pulse.spans) == 24


def test_langchains_runs_are_never_current(pulse: Collector) -> None:
    """What `_record/frameworks/runs.py` assumes; the public function of the instrumentation names the run."""
    from openinference.instrumentation.langchain import get_current_span

    def step(question: str) -> list[Any]:
        run: Any = get_current_span()
        return [trace.get_current_span().get_span_context().is_valid, run.is_recording()]

    assert _step(step, "A").invoke("q") == [False, True]
