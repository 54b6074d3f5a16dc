"""The types that users of the SDK rely on. Checked by mypy (`tests/sdk/test_typing.py`), never run."""

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import assert_type

from openai.types.chat import ChatCompletion

import ragpulse
from ragpulse.testing import RecordedSpans, capture

ragpulse.configure("svc", endpoint="http://127.0.0.1:4318", capture_content=False, redact=["key", str.strip])


@ragpulse.rag
def bare(question: str, k: int = 5) -> list[str]:
    """A plain function."""
    return []


@ragpulse.rag(prompt_name="qa", prompt_version="v7", query="question")
async def called(question: str, *, k: int) -> bytes:
    """A coroutine function."""
    return b""


@ragpulse.llm(model="m", provider="p", usage=lambda result: ragpulse.Usage(input_tokens=1))
def stream(question: str) -> Iterator[str]:
    """A generator."""
    yield ""


@ragpulse.llm
async def astream(question: str) -> AsyncIterator[str]:
    """An async generator."""
    yield ""


class Service:
    @ragpulse.retriever
    def method(self, query: str) -> list[int]:
        return []

    @classmethod
    @ragpulse.tool
    def of_class(cls, n: int) -> int:
        return n

    @staticmethod
    @ragpulse.span("named", kind="guardrail")
    def static(n: int) -> str:
        return ""


async def uses(completion: ChatCompletion) -> None:
    """Every public name, with the type that it gives."""
    assert_type(bare("q"), list[str])
    assert_type(bare("q", k=2), list[str])

    assert_type(await called("q", k=1), bytes)
    assert_type(stream("q"), Iterator[str])
    assert_type(astream("q"), AsyncIterator[str])
    assert_type(Service().method("q"), list[int])
    assert_type(Service.of_class(1), int)
    assert_type(Service.static(1), str)
    bare(1)  # type: ignore[arg-type]
    bare("q", j=1)  # type: ignore[call-arg]
    await called("q")  # type: ignore[call-arg]
    with ragpulse.rag("turn") as span:
        assert_type(span, ragpulse.CurrentSpan)
        span.set(usage=ragpulse.Usage(input_tokens=1), cost_usd=0.1, contexts=["a"])
        span.set(usage={"prompt_tokens": 1, "completion_tokens": 2})
        span.set(usage=completion.usage)
        span.set(tokens=1)  # type: ignore[call-arg]
    assert_type(ragpulse.current_span().trace_id, str)
    assert_type(ragpulse.variant("x", by="u", options=("a", "b")), str)
    assert_type(ragpulse.traced_executor(ThreadPoolExecutor()), Executor)
    assert_type(ragpulse.flush(timeout=1), bool)
    assert_type(ragpulse.stats().exported, int)
    assert_type(ragpulse.doctor(), str)
    with ragpulse.attributes(session_id="s", tags=["a"]), ragpulse.extract({"traceparent": ""}):
        ragpulse.feedback("0" * 32, score=1, comment="fine")
    with capture() as spans:
        assert_type(spans, RecordedSpans)


ragpulse.rag(quer="question")  # type: ignore[call-overload]
ragpulse.rag(capture_inputs="no")  # type: ignore[call-overload]
decorator: Callable[[Callable[[int], str]], Callable[[int], str]] = ragpulse.tool(name="t")
