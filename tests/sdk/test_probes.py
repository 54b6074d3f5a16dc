"""The ten probes that decide whether an SDK may run inside somebody else's service."""

import asyncio
import gc
import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, get_type_hints

import pytest

import ragpulse

from .conftest import Collector

pytestmark = pytest.mark.usefixtures("small_heap")
CHUNKS = ("Paris ", "is ", "in ", "France.")


@ragpulse.llm
def stream(question: str) -> Iterator[str]:
    """A sync stream that makes a span of its own at each item."""
    for chunk in CHUNKS:
        with ragpulse.span("inside"):
            pass
        yield chunk


@ragpulse.llm
async def astream(question: str) -> AsyncIterator[str]:
    """An async stream that makes a span of its own at each item."""
    for chunk in CHUNKS:
        with ragpulse.span("inside"):
            await asyncio.sleep(0)
        yield chunk


def _flushed(collector: Collector) -> Collector:
    gc.collect()
    assert ragpulse.flush(timeout=60)
    return collector


def test_probe_1_a_stream_read_to_its_end_keeps_the_joined_text(pulse: Collector) -> None:
    """The span ends at exhaustion, with the whole text and the time to the first token."""
    assert list(stream("q")) == list(CHUNKS)
    span = _flushed(pulse).one("stream")
    assert span.attributes["output.value"] == "".join(CHUNKS)
    assert span.attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert "ragpulse.ended_early" not in span.attributes
    last_inside = max(item.message.end_time_unix_nano for item in pulse.spans if item.name == "inside")
    assert span.message.end_time_unix_nano >= last_inside


@pytest.mark.parametrize("how", ["close", "break", "forget"])
def test_probe_2_a_stream_closed_early_keeps_its_part_without_an_error(pulse: Collector, how: str) -> None:
    """Whoever closes the stream: status unset, marked, the part that was read kept."""
    generator = stream("q")
    assert next(iter(generator)) == CHUNKS[0]
    if how == "close":
        generator.close()  # type: ignore[attr-defined]
    elif how == "break":
        for _ in generator:
            break
    del generator
    span = _flushed(pulse).one("stream")
    assert span.attributes["ragpulse.ended_early"] is True
    assert span.attributes["output.value"] == "".join(CHUNKS[: 2 if how == "break" else 1])
    assert span.message.status.code == 0


def test_probe_3_the_consumers_spans_are_not_the_streams_children(pulse: Collector) -> None:
    """Between two items the consumer's context is the consumer's; inside, spans nest in the stream."""
    with ragpulse.span("consumer") as consumer:
        for _ in stream("q"):
            with ragpulse.span("between"):
                pass
    _flushed(pulse)
    assert {span.parent for span in pulse.spans if span.name == "between"} == {consumer.span_id}
    assert {span.parent for span in pulse.spans if span.name == "inside"} == {pulse.one("stream").id}
    assert pulse.one("stream").parent == consumer.span_id


async def test_probe_4_async_streams_read_whole(pulse: Collector) -> None:
    """An async generator read to the end is nested, ended, and complete."""
    with ragpulse.span("consumer") as consumer:
        assert [chunk async for chunk in astream("q")] == list(CHUNKS)
    span = _flushed(pulse).one("astream")
    assert (span.parent, span.attributes["output.value"]) == (consumer.span_id, "".join(CHUNKS))


async def test_probe_4_async_streams_broken_off(pulse: Collector) -> None:
    """After a `break` the span ends with its part when the loop finalizes the generator."""
    async for _ in astream("q"):
        break
    gc.collect()
    await asyncio.sleep(0.01)
    span = _flushed(pulse).one("astream")
    assert (span.attributes["output.value"], span.attributes["ragpulse.ended_early"]) == (CHUNKS[0], True)
    assert span.message.status.code == 0


async def test_probe_4_async_streams_stepped_from_new_tasks(pulse: Collector) -> None:
    """Each item awaited in a task of its own: children still nest, the text is whole."""
    iterator = astream("q").__aiter__()
    seen = []
    for _ in CHUNKS:
        seen.append(await asyncio.wait_for(iterator.__anext__(), 60))
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(iterator.__anext__(), 60)
    span = _flushed(pulse).one("astream")
    assert (seen, span.attributes["output.value"]) == (list(CHUNKS), "".join(CHUNKS))
    assert {item.parent for item in pulse.spans if item.name == "inside"} == {span.id}


def _echo(log: list[object]) -> Generator[object, object, str]:
    given: object = None
    try:
        while given != "stop":
            try:
                given = yield given
            except ValueError as error:
                given = f"caught {error}"
            log.append(given)
    finally:
        log.append("closed")
    return "returned"


def test_probe_5_send_throw_close_and_the_returned_value_pass_through(pulse: Collector) -> None:
    """A decorated generator is driven exactly as the bare one."""
    runs = []
    for function in (_echo, ragpulse.span(name="echo")(_echo)):
        log: list[object] = []
        generator = function(log)
        said = [next(generator), generator.send("a"), generator.throw(ValueError("b"))]
        with pytest.raises(StopIteration) as stop:
            generator.send("stop")
        runs.append((said, log, stop.value.value))
    assert runs[0] == runs[1]


async def test_probe_5_asend_athrow_and_aclose_pass_through(pulse: Collector) -> None:
    """A decorated async generator is driven exactly as the bare one."""

    async def echo(log: list[object]) -> AsyncGenerator[object, object]:
        given: object = None
        try:
            while True:
                try:
                    given = yield given
                except ValueError as error:
                    given = f"caught {error}"
        finally:
            log.append("closed")

    runs = []
    for function in (echo, ragpulse.span(echo)):
        log: list[object] = []
        generator = function(log)
        said = [await anext(generator), await generator.asend("a"), await generator.athrow(ValueError("b"))]
        await generator.aclose()
        runs.append((said, log))
    assert runs[0] == runs[1]


async def test_probe_5_an_error_while_closing_reaches_who_closes(pulse: Collector) -> None:
    """The stream's own clean-up runs at the close, not later, and what it raises is not swallowed."""

    @ragpulse.span(name="sync")
    def failing() -> Iterator[str]:
        try:
            yield "a"
        finally:
            raise KeyError("clean-up")

    @ragpulse.span(name="async")
    async def afailing() -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            raise KeyError("clean-up")

    plain, later = failing(), afailing()
    assert (next(plain), await anext(later)) == ("a", "a")
    with pytest.raises(KeyError):
        plain.close()  # type: ignore[attr-defined]
    with pytest.raises(KeyError):
        await later.aclose()  # type: ignore[attr-defined]
    assert {span.attributes["error.type"] for span in _flushed(pulse).spans} == {"KeyError"}


@pytest.mark.parametrize("made", [iter, lambda items: (item for item in items), lambda items: map(str, items)])
def test_probe_6_a_returned_iterator_is_a_stream(pulse: Collector, made: Any) -> None:
    """A plain function that returns an iterator: recorded like a generator, its consumer outside the span."""

    @ragpulse.llm
    def returned(question: str) -> Any:
        return made(CHUNKS)

    items = []
    for item in returned("q"):
        items.append(item)
        with ragpulse.span("between"):
            pass
    span = _flushed(pulse).one("returned")
    assert (items, span.attributes["output.value"]) == (list(CHUNKS), "".join(CHUNKS))
    assert {between.parent for between in pulse.spans if between.name == "between"} == {""}


@pytest.mark.parametrize("made", [lambda items: (item for item in items), lambda items: map(str, items), chain])
def test_probe_6_an_iterator_that_is_never_read_still_ends_its_span(pulse: Collector, made: Any) -> None:
    """Dropping the iterator ends the span, marked."""
    ragpulse.llm(name="dropped")(lambda question: made(CHUNKS))("q")
    assert _flushed(pulse).one("dropped").attributes["ragpulse.ended_early"] is True


def test_probe_6_a_containers_iterator_is_recorded_whole(pulse: Collector) -> None:
    """Its items exist when the function returns: nothing is left out when it is dropped."""
    ragpulse.llm(name="dropped")(lambda question: iter(CHUNKS))("q")
    span = _flushed(pulse).one("dropped")
    assert (span.attributes["output.value"], span.attributes.get("ragpulse.ended_early")) == ("".join(CHUNKS), None)


def test_probe_6_a_provider_stream_keeps_its_own_attributes(pulse: Collector) -> None:
    """What else the returned object offers shows through, its class included."""

    class Stream:
        response = "headers"

        def __iter__(self) -> "Stream":
            return self

        def __next__(self) -> str:
            raise StopIteration

    returned = ragpulse.llm(name="provider")(lambda: Stream())()
    assert isinstance(returned, Stream)
    assert (returned.response, list(returned)) == ("headers", [])


def test_probe_7_an_exception_is_recorded_and_raised_untouched(pulse: Collector) -> None:
    """Type, message and stack are on the span; the caller sees the very same object."""
    error = KeyError("missing")

    @ragpulse.rag
    def failing(question: str) -> str:
        raise error

    with pytest.raises(KeyError) as caught:
        failing("q")
    assert caught.value is error
    span = _flushed(pulse).one("failing")
    ((name, event),) = span.events
    assert (name, event["exception.type"], event["exception.message"]) == ("exception", "KeyError", "'missing'")
    assert "raise error" in event["exception.stacktrace"]
    assert (span.message.status.code, span.attributes["error.type"]) == (2, "KeyError")


def test_probe_7_a_deep_stack_is_shown_by_its_ends(pulse: Collector) -> None:
    """Each of 200 spans has the outermost and the innermost frames, and none of ours."""

    def outermost() -> None:
        deep(200)

    @ragpulse.span
    def deep(left: int) -> None:
        raise LookupError("innermost") if not left else _relay[left % 2](left - 1)

    _relay = (lambda left: deep(left), lambda left: deep(left))
    with pytest.raises(LookupError):
        outermost()
    stacks = [span.events[0][1]["exception.stacktrace"] for span in _flushed(pulse).spans]
    assert len(stacks) == 201
    assert not any("_decorators.py" in stack for stack in stacks)
    assert max(stack.count('  File "') for stack in stacks) <= 64
    assert all("frames left out" in stack and stack.endswith("LookupError: innermost\n") for stack in stacks[64:])


async def test_probe_7_cancellation_is_recorded_and_passed_on(pulse: Collector) -> None:
    """A cancelled coroutine's span is marked and no error; the task is cancelled as before."""
    started = asyncio.Event()

    @ragpulse.rag
    async def waiting(question: str) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(waiting("q"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span = _flushed(pulse).one("waiting")
    assert (span.message.status.code, span.events, "error.type" in span.attributes) == (0, [], False)
    assert span.attributes["ragpulse.ended_early"] is True


async def test_probe_8_context_reaches_tasks_threads_and_executors(pulse: Collector) -> None:
    """`create_task`, `to_thread` and a traced pool nest their spans in the caller's."""

    @ragpulse.tool
    def work(where: str) -> None:
        pass

    @ragpulse.tool
    async def awork(where: str) -> None:
        pass

    with ThreadPoolExecutor(1) as pool, ragpulse.span("caller") as caller:
        await asyncio.create_task(awork("task"))
        await asyncio.to_thread(work, "thread")
        ragpulse.traced_executor(pool).submit(work, "pool").result()
        list(ragpulse.traced_executor(pool).map(work, ["map"]))
    _flushed(pulse)
    work_spans = [span for span in pulse.spans if span.name.endswith("work")]
    assert len(work_spans) == 4
    assert {span.parent for span in work_spans} == {caller.span_id}


FORKING = """
import os, sys, multiprocessing, ragpulse
ragpulse.configure(service_name="forks", endpoint=sys.argv[1])

@ragpulse.rag
def answer(who): return who

def child(who):
    answer(who)

if __name__ == "__main__":
    answer("parent before")
    with ragpulse.span("open across the fork"):
        pid = os.fork()
        if pid == 0:
            answer("forked child")
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child, args=(method,))
        process.start(); process.join()
    answer("parent after")
"""


def test_probe_9_forked_and_spawned_children_deliver_once(collector: Collector, tmp_path: Any) -> None:
    """os.fork, multiprocessing by fork and by spawn: every span arrives once, and the process ends."""
    script = tmp_path / "forking.py"
    script.write_text(FORKING)
    subprocess.run([sys.executable, str(script), collector.url], check=True, timeout=60)
    queries = sorted(span.attributes.get("input.value", "") for span in collector.spans if span.name == "answer")
    assert queries == ["fork", "forked child", "parent after", "parent before", "spawn"]
    assert len([span for span in collector.spans if span.name == "open across the fork"]) == 1
    assert len({span.id for span in collector.spans}) == len(collector.spans)


UNANNOUNCED = """
import multiprocessing, os, sys, ragpulse
ragpulse.configure(endpoint=sys.argv[1])
search = ragpulse.retriever(name="search")(lambda query: ["found"])

@ragpulse.rag
def answer(who):
    search("q")
    return who

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool, ragpulse.span("around"):
            pool.map(answer, [f"{method} {number}" for number in range(10)])
    with ragpulse.span("around"):
        if not (pid := os.fork()):
            answer("job")
            os._exit(0)
    os.waitpid(pid, 0)
"""


def test_workers_that_end_unannounced_deliver(collector: Collector, tmp_path: Any) -> None:
    """`with Pool()` ends its workers by SIGTERM, a job queue's worker leaves by `os._exit`: no hook of ours runs."""
    script = tmp_path / "unannounced.py"
    script.write_text(UNANNOUNCED)
    subprocess.run([sys.executable, str(script), collector.url], check=True, timeout=60)
    spans = list(collector.spans)
    expected = sorted(["job", *[f"{method} {number}" for method in ("fork", "spawn") for number in range(10)]])
    assert sorted(span.attributes["input.value"] for span in spans if span.name == "answer") == expected
    assert len([span for span in spans if span.name == "search"]) == len(expected)


FORKED_FIRST = """
import os, sys
if pid := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
import ragpulse
ragpulse.configure(endpoint=sys.argv[1])
ragpulse.rag(name="answer")(lambda who: who)("job")
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing says that a process was forked")
def test_a_child_that_imports_us_after_the_fork_delivers(collector: Collector, tmp_path: Any) -> None:
    """As a child of RQ does: the worker above it never imports the module with the jobs."""
    script = tmp_path / "forked_first.py"
    script.write_text(FORKED_FIRST)
    subprocess.run([sys.executable, str(script), collector.url], check=True, timeout=60)
    assert collector.one("answer").attributes["output.value"] == "job"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attributes")


HOSTILE = {
    "object": Hostile,
    "surrogate": lambda: "\ud800",
    "big int": lambda: 2**80,
    "5 MB": lambda: "x" * 5_000_000,
    "list": lambda: [Hostile()],
    "dict": lambda: {"k": Hostile()},
    "nan": lambda: float("nan"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_probe_10_hostile_values_neither_fail_nor_poison_the_batch(pulse: Collector, kind: str) -> None:
    """The function works, and a neighbour in the same batch arrives whole."""
    value: Any = HOSTILE[kind]()  # type: ignore[no-untyped-call]
    for decorator in (ragpulse.rag, ragpulse.retriever, ragpulse.tool, ragpulse.llm):
        assert decorator(name="hostile")(lambda given: given)(value) is value
        with ragpulse.span("set") as span:
            span.set(query=value, response=value, contexts=[value], metadata={"m": value})
    assert ragpulse.span(name="neighbour")(lambda: "fine")() == "fine"
    assert _flushed(pulse).one("neighbour").attributes["output.value"] == "fine"
    assert len(pulse.spans) == 9
    assert ragpulse.stats().dropped == 0


def test_a_long_text_is_cut_with_a_mark(pulse: Collector) -> None:
    """64 KiB are kept; the mark, the original length and a hash are on the span."""
    ragpulse.rag(name="long")(lambda text: "ok")("é" * 3_000_000)
    attributes = _flushed(pulse).one("long").attributes
    cut = json.loads(attributes["ragpulse.truncated"])["input.value"]
    assert cut["bytes"] == 6_000_000
    assert len(attributes["input.value"].encode()) < 66_000
    assert f"truncated: 6000000 bytes, sha256 {cut['sha256']}" in attributes["input.value"]


def test_decoration_keeps_signature_hints_and_kind_of_function(pulse: Collector) -> None:
    """`inspect` sees the same function: coroutine, generator, signature, annotations, names."""

    async def coroutine(a: int, *, b: str = "x") -> bytes:
        return b""

    def generator(a: int) -> Iterator[str]:
        yield ""

    async def agenerator(a: int) -> AsyncIterator[str]:
        yield ""

    for bare in (coroutine, generator, agenerator):
        decorated: Any = ragpulse.rag(bare)
        for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            assert question(decorated) == question(bare)
        assert inspect.signature(decorated) == inspect.signature(bare)
        assert get_type_hints(decorated) == get_type_hints(bare)
        assert (decorated.__name__, decorated.__doc__) == (bare.__name__, bare.__doc__)


def test_changing_a_returned_object_does_not_change_the_record(pulse: Collector) -> None:
    """The snapshot is taken when the function returns."""
    context: dict[str, Any] = {"text": "before", "metadata": {"n": [1]}}
    found = ragpulse.retriever(name="search")(lambda query: [context])("q")
    found[0]["text"] = "after"
    found[0]["metadata"]["n"].append(2)
    documents = json.loads(_flushed(pulse).one("search").attributes["gen_ai.retrieval.documents"])
    assert documents == [{"score": None, "content": "before", "metadata": {"n": [1]}}]


def test_methods_of_every_sort_are_recorded(pulse: Collector) -> None:
    """Methods, class methods and static methods, decorated inside or outside; `self` is never the query."""

    class Service:
        @ragpulse.rag
        def method(self, question: str) -> str:
            return question

        @classmethod
        @ragpulse.rag
        def of_class(cls, question: str) -> str:
            return question

        @ragpulse.rag
        @staticmethod
        def static(question: str) -> str:
            return question

        @ragpulse.llm
        def streamed(self, question: str) -> Iterator[str]:
            yield question

    service = Service()
    assert (service.method("a"), Service.of_class("b"), service.static("c")) == ("a", "b", "c")
    assert list(service.streamed("d")) == ["d"]
    _flushed(pulse)
    queries = {span.name.rpartition(".")[2]: span.attributes["input.value"] for span in pulse.spans}
    assert queries == {"method": "a", "of_class": "b", "static": "c", "streamed": "d"}


def test_unconfigured_decorators_do_nothing_and_say_so_once(tmp_path: Any) -> None:
    """Without configure: no thread, no socket, the bare result, one log line."""
    code = """
        import threading, ragpulse
        with ragpulse.span("s") as s: s.set(query="q")
        assert s.trace_id == "" and ragpulse.flush() and ragpulse.stats().exported == 0
        assert ragpulse.rag(lambda q: q)("x") == "x"
        ragpulse.feedback("1" * 32)
        ragpulse.configure(endpoint="http://127.0.0.1:9")
        assert threading.active_count() == 1
    """
    for wanted, lines in (("1", 1), ("0", 0)):
        environment = {**_environment(), "RAGPULSE_ENABLED": wanted}
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, check=True, timeout=60, env=environment, capture_output=True, text=True)
        assert done.stderr.count("nothing is recorded") == lines


def _environment() -> dict[str, str]:
    """This process's, without what would configure ragpulse."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("RAGPULSE_", "OTEL_"))}


SPAWNED = """
import multiprocessing, ragpulse
answer = ragpulse.rag(name="answer")(lambda who: who)

def child(trace):
    answer("child")
    ragpulse.feedback("1" * 32)

if __name__ == "__main__":
    answer("parent")
    process = multiprocessing.get_context("spawn").Process(target=child, args=("",))
    process.start(); process.join()
"""


def test_the_environment_configures_at_the_first_span(collector: Collector, tmp_path: Any) -> None:
    """Where it names the collector: also in spawned children, which do not run the parent's `configure`."""
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    environment = {**_environment(), "RAGPULSE_ENDPOINT": collector.url}
    subprocess.run([sys.executable, str(script)], check=True, timeout=60, env=environment)
    assert sorted(span.attributes["input.value"] for span in collector.spans) == ["child", "parent"]
    assert len(collector.logs) == 1
