"""What the application gets is what its function returned: the object itself, or one that nobody can tell from it."""

import copy
import csv
import gc
import io
import itertools
import operator
import os
import pickle
import re
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock, NonCallableMock

import httpx
import pandas
import pyarrow
import pytest

import ragpulse
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

KINDS = ("rag", "llm", "retriever", "reranker", "tool", "agent", "embedding", "span")


class Pages:
    """An iterator of the application, as many libraries have one."""

    def __init__(self) -> None:
        self._rest = ["a", "b"]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._rest:
            raise StopIteration
        return self._rest.pop(0)

    def __len__(self) -> int:
        return len(self._rest)

    def __getitem__(self, place: int) -> str:
        return self._rest[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pages) and self._rest == other._rest

    __hash__ = None  # type: ignore[assignment]


class Feed:
    """As `Pages`, asynchronous."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        raise StopAsyncIteration


def _cursor() -> sqlite3.Cursor:
    return sqlite3.connect(":memory:").execute("SELECT 1 UNION SELECT 2")


def _batches() -> pyarrow.RecordBatchReader:
    return pyarrow.Table.from_pylist([{"n": 1}, {"n": 2}]).to_reader(max_chunksize=1)


UNKNOWN: dict[str, Callable[[], Any]] = {
    "cursor of a database": _cursor,
    "rows of csv": lambda: csv.reader(["a,b", "c,d"]),
    "dicts of csv": lambda: csv.DictReader(["a,b", "c,d"]),
    "file in memory": lambda: io.StringIO("a\nb\n"),
    "bytes in memory": lambda: io.BytesIO(b"a\nb\n"),
    "file on disk": lambda: open(__file__),  # noqa: SIM115 - the application closes it
    "folder": lambda: os.scandir(os.path.dirname(__file__)),
    "reader of pandas": lambda: pandas.read_csv(io.StringIO("n\n1\n2\n"), chunksize=1),
    "reader of pyarrow": _batches,
    "response of httpx": lambda: httpx.Response(200, text="a\nb"),
    "iterator of the application": Pages,
    "asynchronous iterator of the application": Feed,
    "mock": MagicMock,
    "mock with items": lambda: MagicMock(__next__=lambda self: "a", __iter__=lambda self: self),
    "asynchronous mock": AsyncMock,
    "product": lambda: itertools.product("ab", "cd"),
    "pairs": lambda: itertools.pairwise("abc"),
    "groups": lambda: itertools.groupby("aab"),
    "numbers without end": itertools.count,
    "one without end": lambda: itertools.repeat("a"),
}  # fmt: skip


def _items(iterator: Any) -> list[str]:
    """What there is to read, at most five, and how a mock was used."""
    if isinstance(iterator, NonCallableMock):
        return [str(call) for call in iterator.mock_calls]
    if isinstance(iterator, (httpx.Response, Feed)):
        return []
    return [str(getattr(item, "name", item)).partition(" object at")[0] for item in itertools.islice(iterator, 5)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", UNKNOWN)
def test_an_object_that_is_not_known_is_returned_itself(ragpulse_spans: RecordedSpans, shape: str, kind: str) -> None:
    """It is neither replaced nor read, and the span ends with the function."""
    made, other = UNKNOWN[shape](), UNKNOWN[shape]()
    returned = getattr(ragpulse, kind)(name="call")(lambda query: made)("q")
    assert returned is made
    assert len(ragpulse_spans) == 1
    assert _items(returned) == _items(other)
    for each in (made, other) if hasattr(type(made), "close") else ():
        each.close()


PIECES = ["Paris ", "is ", "in ", "France."]


def _piece_after(pieces: list[str]) -> Callable[[], str]:
    rest = iter(pieces)
    return lambda: next(rest, "")


ITERATORS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter(PIECES),
    "tuple": lambda: iter(tuple(PIECES)),
    "text": lambda: iter("".join(PIECES)),
    "letters beyond ascii": lambda: iter("Paris \u00e9"),
    "keys": lambda: iter(dict.fromkeys(PIECES)),
    "values": lambda: iter(dict(enumerate(PIECES)).values()),
    "queue": lambda: iter(deque(PIECES)),
    "reversed": lambda: reversed(PIECES),
    "map": lambda: map(str, PIECES),
    "map of several": lambda: map(operator.add, PIECES, PIECES),
    "filter": lambda: filter(None, ["", *PIECES]),
    "zip": lambda: zip(PIECES, [1, 2, 3, 4], strict=True),
    "zip of one": lambda: zip(PIECES, strict=False),
    "enumerate": lambda: enumerate(PIECES, 7),
    "until a sentinel": lambda: iter(_piece_after(PIECES), ""),
    "matches": lambda: re.finditer("[a-z]+", "Paris is in France."),
    "chain": lambda: itertools.chain(PIECES, PIECES),
    "chain of a generator": lambda: itertools.chain.from_iterable(part.split() for part in PIECES),
    "islice": lambda: itertools.islice(PIECES, 2),
    "takewhile": lambda: itertools.takewhile(str.istitle, PIECES),
    "dropwhile": lambda: itertools.dropwhile(str.istitle, PIECES),
    "filterfalse": lambda: itertools.filterfalse(str.istitle, PIECES),
    "compress": lambda: itertools.compress(PIECES, [1, 0, 1, 0]),
    "accumulate": lambda: itertools.accumulate(PIECES),
    "starmap": lambda: itertools.starmap(str, [(piece,) for piece in PIECES]),
    "generator": lambda: (piece for piece in PIECES),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["llm", "retriever", "rag"])
@pytest.mark.parametrize("shape", ITERATORS)
def test_an_iterator_of_python_is_one_of_the_same_type(ragpulse_spans: RecordedSpans, shape: str, kind: str) -> None:
    """Same type, same items, same start and end; the span ends with the last item."""
    bare, returned = ITERATORS[shape](), getattr(ragpulse, kind)(name="call")(lambda query: ITERATORS[shape]())("q")
    assert type(returned) is type(bare)
    assert (iter(returned) is returned, returned == bare, bool(returned)) == (True, False, True)
    assert operator.length_hint(returned) == operator.length_hint(bare)
    assert (hasattr(returned, "send"), hasattr(returned, "gi_frame")) == (hasattr(bare, "send"),) * 2
    assert [str(item) for item in returned] == [str(item) for item in bare]
    assert next(returned, None) is None
    span = ragpulse_spans.one("call")
    assert "ragpulse.ended_early" not in span.attributes
    if kind == "llm" and shape != "accumulate" and all(isinstance(item, str) for item in ITERATORS[shape]()):
        assert span.response == "".join(ITERATORS[shape]())
    if kind == "retriever" and shape in ("list", "map", "chain", "generator", "zip"):
        assert [context.text for context in span.contexts][:4] == PIECES


@pytest.mark.parametrize("shape", ["list", "keys", "map", "enumerate", "chain", "islice"])
def test_a_copy_of_an_iterator_and_a_pickled_one_are_as_the_originals(
    ragpulse_spans: RecordedSpans, shape: str
) -> None:
    """A copy has the same items, and what was copied or sent elsewhere is not recorded."""
    call = ragpulse.llm(name="call")(lambda query: ITERATORS[shape]())
    expected = list(ITERATORS[shape]())
    assert list(copy.copy(call("q"))) == expected
    assert list(copy.deepcopy(call("q"))) == expected
    assert list(pickle.loads(pickle.dumps(call("q")))) == expected


@pytest.mark.parametrize("shape", ["map", "filter", "zip", "chain", "until a sentinel", "generator"])
def test_an_iterator_that_is_dropped_ends_its_span(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """Before the first item and after it; what was read is kept."""
    for taken in (0, 1):
        ragpulse_spans.clear()
        returned = ragpulse.llm(name="call")(lambda query: ITERATORS[shape]())("q")
        assert len(list(itertools.islice(returned, taken))) == taken
        assert len(ragpulse_spans) == 0
        del returned
        gc.collect()
        assert ragpulse_spans.one("call").attributes["ragpulse.ended_early"] is True


def test_an_error_of_an_iterators_function_is_the_calls(ragpulse_spans: RecordedSpans) -> None:
    """It reaches the consumer untouched."""
    returned = ragpulse.llm(name="call")(lambda query: map(int, ["1", "x"]))("q")
    assert next(returned) == 1
    with pytest.raises(ValueError, match="invalid literal"):
        next(returned)
    assert ragpulse_spans.one("call").error == "ValueError"
