"""Python's own iterators: an iterator of the same type is returned, whose items are recorded as they are taken.

An iterator over a list, a text or another container is returned itself: its items exist, and a copy of it is read.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from operator import getitem, itemgetter
from typing import Any

from ragpulse._record.call import RecordedCall

_MAX_ITEMS = 10_000


class _Steps:
    """The items of an iterator, taken under the call's span. Copied and pickled, it is the iterator itself."""

    __slots__ = ("_call", "_source")

    def __init__(self, call: RecordedCall, source: Iterator[Any]) -> None:
        self._call = call
        self._source = source

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:
        return self._call.next(self._source.__next__)

    def __reduce__(self) -> tuple[Any, ...]:
        return iter, (self._source,)

    def __del__(self) -> None:
        self._call.closed_early()


class _Unequal:
    """A sentinel that no item equals; arrays would compare item by item."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _same(item: Any) -> Any:
    return item


def _alone(item: Any) -> tuple[Any]:
    return (item,)


def _second(_: Any, item: Any) -> Any:
    return item


def _true(_: Any) -> bool:
    return True


def _false(_: Any) -> bool:
    return False


def _zipped(steps: _Steps, source: Any) -> Any:
    """A `zip` of as many columns as the source has; the first takes a row, the others read it."""
    row: list[Any] = []

    def first(items: tuple[Any, ...]) -> Any:
        row[:] = items
        return items[0]

    width = len(source.__reduce__()[1])
    others = [iter(partial(getitem, row, place), _Unequal()) for place in range(1, width)]
    return zip(map(first, steps), *others, strict=False)


def _enumerated(steps: _Steps, source: Any) -> Any:
    return enumerate(map(itemgetter(1), steps), source.__reduce__()[1][1])


_REBUILT: dict[type, Callable[[Any, Any], Any]] = {
    map: lambda steps, _: map(_same, steps),
    filter: lambda steps, _: filter(_true, steps),
    enumerate: _enumerated,
    zip: _zipped,
    type(iter(int, 1)): lambda steps, _: iter(steps.__next__, _Unequal()),
    itertools.accumulate: lambda steps, _: itertools.accumulate(steps, _second),
    itertools.chain: lambda steps, _: itertools.chain(steps),
    itertools.compress: lambda steps, _: itertools.compress(steps, itertools.repeat(True)),
    itertools.dropwhile: lambda steps, _: itertools.dropwhile(_false, steps),
    itertools.filterfalse: lambda steps, _: itertools.filterfalse(_false, steps),
    itertools.islice: lambda steps, _: itertools.islice(steps, None),
    itertools.starmap: lambda steps, _: itertools.starmap(_same, map(_alone, steps)),
    itertools.takewhile: lambda steps, _: itertools.takewhile(_true, steps),
}
"""Type → an iterator of it that only passes items on. Those that make tuples of several items are no streams."""
_CONTAINERS: tuple[Any, ...] = (
    [], (), "", "\u00e9", b"", bytearray(), range(0), set(), deque(), {}, {}.values(), {}.items(),
)  # fmt: skip
_HELD = frozenset([type(iter(container)) for container in _CONTAINERS] + [type(reversed([])), type(reversed({}))])
ITERATORS = _HELD | _REBUILT.keys()
"""The types that `recorded` takes; all others are returned as they are."""


def recorded(call: RecordedCall, source: Any) -> Any:
    """An iterator of the source's type, with the call's span ending when it is read or dropped."""
    if type(source) not in _HELD:
        return _REBUILT[type(source)](_Steps(call, source), source)
    for item in itertools.islice(copy(source), _MAX_ITEMS):
        call.item(item)
    call.ended()
    return source
