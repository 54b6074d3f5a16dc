"""What the SDK assumes beyond documented interfaces: each assumption has one place and one test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Token
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context

import ragpulse
from ragpulse._record import otel
from ragpulse._record.recording import runs_call
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]


def test_the_token_of_attach_is_one_of_the_context_variable() -> None:
    """Contexts that are entered by the variable are OpenTelemetry's current ones, and back."""
    mine, theirs = Context({"a": 1}), Context({"b": 2})
    token = otel.enter(mine)
    assert isinstance(token, Token)
    assert otel_context.get_current() == mine
    second = otel_context.attach(theirs)
    assert otel.current() == theirs
    otel_context.detach(second)
    assert otel.current() == mine
    otel.restore(token)
    assert otel_context.get_current() != mine


def test_the_keys_of_span_and_baggage_are_those_of_opentelemetry() -> None:
    """What is set by the key is found by the public function, and the other way round."""
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
    assert trace.get_current_span(Context({otel.SPAN_KEY: span})) is span
    assert trace.set_span_in_context(span, Context())[otel.SPAN_KEY] is span
    assert baggage.get_all(Context({otel.BAGGAGE_KEY: {"a": "b"}})) == {"a": "b"}
    assert baggage.set_baggage("a", "b", Context())[otel.BAGGAGE_KEY] == {"a": "b"}


class Secret(Exception):
    """Has what a function withholds in its text."""


def _function(question: str) -> str:
    raise Secret(question)


def _generator(question: str) -> Iterator[str]:
    yield "a"
    raise Secret(question)


async def _coroutine(question: str) -> str:
    raise Secret(question)


async def _async_generator(question: str) -> AsyncIterator[str]:
    yield "a"
    raise Secret(question)


def _returned_iterator(question: str) -> Iterator[str]:
    return map(_function, [question])


def _returned_generator(question: str) -> Iterator[str]:
    return (_function(each) for each in [question])


async def _read(stream: AsyncIterator[str]) -> list[str]:
    return [item async for item in stream]


WRAPPERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "function": (_function, lambda result: result),
    "generator": (_generator, list),
    "coroutine": (_coroutine, asyncio.run),
    "asynchronous generator": (_async_generator, lambda stream: asyncio.run(_read(stream))),
    "returned iterator": (_returned_iterator, list),
    "returned generator": (_returned_generator, list),
    "returned coroutine": (lambda question: _coroutine(question), asyncio.run),
}


@pytest.mark.parametrize("shape", WRAPPERS)
def test_an_exception_that_passed_a_withholding_function_has_no_text(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """Whichever wrapper ran it: the frames of each are marked. The function around it has texts of its own."""
    function, read = WRAPPERS[shape]
    quiet = ragpulse.llm(name="quiet", capture_outputs=False)(function)
    with pytest.raises(Secret):
        ragpulse.rag(name="outer")(lambda question: read(quiet("password hunter2")))("q")
    with pytest.raises(Secret), ragpulse.span("block"):
        raise Secret("in the open")
    recorded = {span.name: [event.attributes for event in span.events] for span in ragpulse_spans._spans}
    assert "hunter2" not in str(recorded["quiet"]) + str(recorded["outer"])
    assert [str(span.status.description) for span in ragpulse_spans._spans][:2] == ["None", "None"]


def _block(question: str) -> None:
    with ragpulse.rag("quiet", capture_outputs=False):
        _function(question)


def _stack(question: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(ragpulse.rag("quiet", capture_inputs=False))
        _function(question)


def _asynchronous_block(question: str) -> None:
    async def run() -> None:
        async with ragpulse.rag("quiet", capture_outputs=False):
            await _coroutine(question)

    asyncio.run(run())


def _generator_with_block(question: str) -> None:
    def items() -> Iterator[str]:
        with ragpulse.rag("quiet", capture_outputs=False):
            yield _function(question)

    list(items())


def _thread(question: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(_block, question).result()


def _cause(question: str) -> None:
    try:
        _block(question)
    except Secret as error:
        raise ValueError(f"not {error}") from error


def _block_around_the_block(question: str) -> None:
    with ragpulse.span("open block"):
        _block(question)


def _several_lines(question: str) -> None:
    with ragpulse.rag("quiet", capture_outputs=False):
        try:
            _function(question)
        finally:
            str(question)


BLOCKS = (
    _block, _stack, _asynchronous_block, _generator_with_block, _thread, _cause, _block_around_the_block,
    _several_lines,
)  # fmt: skip


@pytest.mark.parametrize("function", BLOCKS)
def test_an_exception_that_left_a_withholding_block_has_no_text(
    ragpulse_spans: RecordedSpans, function: Callable[[str], None]
) -> None:
    """However it was entered, in no span around it; an exception from beside a block has its text."""

    def beside(question: str) -> None:
        with ragpulse.rag("quiet", capture_outputs=False):
            pass
        raise Secret("in the open")

    with pytest.raises((Secret, ValueError)):
        ragpulse.rag(name="outer")(lambda question: ragpulse.span(name="middle")(function)(question))("hunter2")
    spans = ragpulse_spans._spans
    assert {"quiet", "middle", "outer"} <= {span.name for span in spans}
    sent = [(span.status.description, [event.attributes for event in span.events]) for span in spans]
    assert "hunter2" not in str(sent)
    with pytest.raises(Secret):
        ragpulse.span(name="beside")(beside)("q")
    assert str(ragpulse_spans.one("beside").error_message).endswith(": in the open")


def test_a_wrapper_without_its_call_is_refused_where_it_is_defined() -> None:
    """A renamed variable would silently send texts."""

    def wrapper(cell: Any) -> Any:
        return cell

    with pytest.raises(TypeError, match="has no variable call"):
        runs_call()(wrapper)
