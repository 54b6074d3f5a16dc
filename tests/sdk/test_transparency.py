"""No input makes a decorated function behave differently from the bare one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragpulse

from .conftest import Collector

KINDS = (
    ragpulse.rag,
    ragpulse.retriever,
    ragpulse.reranker,
    ragpulse.embedding,
    ragpulse.llm,
    ragpulse.tool,
    ragpulse.agent,
    ragpulse.span,
)


class Hostile:
    """Raises at every look but `repr`, which hypothesis needs."""

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __repr__(self) -> str:
        return "Hostile()"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attributes")


leaf = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=10)
    | st.builds(Hostile) | st.builds(object) | st.text("\ud800x", max_size=2)
)  # fmt: skip
words = st.sampled_from(
    ["text", "content", "id", "score", "metadata", "usage", "choices", "model", "delta", "type", "role"]
)
anything = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(words | st.integers(), inner, max_size=5)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


class Boom(Exception):
    """An application's own error."""


def _outcome(function: Any, *args: Any, **kwargs: Any) -> tuple[str, Any]:
    try:
        return "returned", function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is what is compared
        return "raised", type(error)


@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    args=st.lists(anything, max_size=3),
    kwargs=st.dictionaries(st.sampled_from("abck"), anything, max_size=2),
    fails=st.booleans(),
)
def test_a_function_returns_the_same_object_or_raises_the_same_error(
    pulse: Collector, kind: Any, args: list[Any], kwargs: dict[str, Any], fails: bool
) -> None:
    """Identity of the result, type of the error, wrong calls included; strict mode shows that nothing failed inside."""

    def bare(query: Any, b: Any = None, *rest: Any, k: Any = 3) -> Any:
        if fails:
            raise Boom(query)
        return query

    expected, given_back = _outcome(bare, *args, **kwargs), _outcome(kind(bare), *args, **kwargs)
    assert given_back[0] == expected[0]
    assert given_back[1] is expected[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(anything, max_size=5), stop=st.integers(0, 6), returned=anything, fails=st.booleans())
def test_a_generator_yields_the_same_objects_however_far_it_is_read(
    pulse: Collector, items: list[Any], stop: int, returned: Any, fails: bool
) -> None:
    """Items, returned value, error and closing are those of the bare generator."""

    def read(make: Any) -> list[Any]:
        log: list[Any] = []

        def bare(query: str) -> Iterator[Any]:
            try:
                yield from items
                if fails:
                    raise Boom
                return returned  # type: ignore[no-any-return]
            finally:
                log.append("closed")

        generator = make(bare)("q")
        with contextlib.suppress(Boom):
            for _ in range(stop):
                try:
                    log.append(id(next(generator)))
                except StopIteration as end:
                    log.append(id(end.value))
        generator.close()
        return log

    assert read(ragpulse.llm) == read(lambda function: function)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(anything, max_size=4), stop=st.integers(0, 5), fails=st.booleans())
def test_an_async_generator_yields_the_same_objects(pulse: Collector, items: list[Any], stop: int, fails: bool) -> None:
    """As for generators, awaited."""

    async def read(make: Any) -> list[Any]:
        log: list[Any] = []

        async def bare(query: str) -> AsyncIterator[Any]:
            try:
                for item in items:
                    yield item
                if fails:
                    raise Boom
            finally:
                log.append("closed")

        generator = make(bare)("q")
        with contextlib.suppress(Boom, StopAsyncIteration):
            for _ in range(stop):
                log.append(id(await anext(generator)))
        await generator.aclose()
        return log

    assert asyncio.run(read(ragpulse.retriever)) == asyncio.run(read(lambda function: function))


@pytest.mark.parametrize("option", ["query", "contexts", "response", "usage"])
def test_strict_mode_and_pytest_raise_a_capture_functions_error(pulse: Collector, option: str) -> None:
    """Under pytest a mistake in `query=` and its like is found where it is written."""
    with pytest.raises(ZeroDivisionError):
        ragpulse.rag(**{option: lambda given: 1 / 0})(lambda q: q)("x")  # type: ignore[call-overload]


def test_attributes_of_a_wrong_type_are_logged_only(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """The block runs."""
    ragpulse.configure(endpoint=collector.url, strict=False)
    with ragpulse.attributes(tags=5):  # type: ignore[arg-type]
        ran = True
    ragpulse.shutdown(timeout=0)
    assert ran
    assert "attributes failed" in caplog.text


def test_a_misspelt_parameter_is_named_in_the_log(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """Outside strict mode, too."""
    ragpulse.configure(endpoint=collector.url, strict=False)
    ragpulse.rag(query="qestion")(lambda question: question)
    ragpulse.shutdown(timeout=0)
    assert "did you mean query='question'?" in caplog.text


def test_outside_strict_mode_a_capture_functions_error_is_logged_only(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """The function works, its span arrives, the log says what failed."""
    ragpulse.configure(endpoint=collector.url, strict=False)
    broken = {
        "query": lambda args: 1 / 0,
        "contexts": lambda r: 1 / 0,
        "response": lambda r: 1 / 0,
        "usage": lambda r: 1,
    }
    for option, function in broken.items():
        assert ragpulse.llm(name=option, **{option: function})(lambda q: q)("x") == "x"  # type: ignore[call-overload]
    ragpulse.shutdown(timeout=60)
    assert {span.name for span in collector.spans} == set(broken)
    assert "your function is not affected" in caplog.text
