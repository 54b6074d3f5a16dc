"""What is read at little cost is what the rules read: rows of the tables, and mixtures of all their names."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

from test_shapes import REPLIES, STREAMS

from ragpulse import shapes
from ragpulse._reading.replies import Said
from ragpulse._reading.usual import usual_text

_REPLY = ("content", "message", "choices", "delta", "text", "role", "type", "answer", "index", "id")
_REPLY_NAMES = (
    *shapes.ANSWER_KEYS, *shapes.MESSAGE_KEYS, *shapes.ROLE_KEYS, *shapes.PART_TYPE_KEYS, *shapes.CALL_KEYS, "thought",
    "tool_calls", "tool_call_chunks", "arguments", "name", "ns", "event", "run_id", "snapshot", "documents", "token",
)  # fmt: skip
_REPLY_VALUES: tuple[Any, ...] = (
    "x", "", "<a.b object at 0x1f>", "assistant", "user", "text", "ai", "message", "tool_call", "tool", "reasoning",
    "x.done", "message_start", None, None, None, 0, 1, True, [], {}, 1.5,
)  # fmt: skip


class Mixture:
    """Mappings of random names and values, the usual ones more often; the same in each run."""

    def __init__(self, usual: tuple[str, ...], names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        self._random = Random(7)
        self._usual, self._names, self._values = usual, names, values

    def fields(self, depth: int = 4) -> dict[str, Any]:
        """Return one to four fields."""
        pick = self._random.choice
        names = [pick(self._usual if self._random.random() < 0.8 else self._names) for _ in range(pick((1, 2, 3, 4)))]
        return {name: self._value(depth - 1) for name in names}

    def _value(self, depth: int) -> Any:
        kind = self._random.random() if depth else 0
        if kind < 0.5:
            return self._random.choice(self._values)
        return self.fields(depth) if kind < 0.8 else [self._value(depth) for _ in range(self._random.choice((1, 1, 2)))]


def _both(values: Iterator[Any]) -> Iterator[Any]:
    """Each value as JSON and as objects."""
    for value in values:
        yield value
        yield _object(value)


def _object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{str(key): _object(part) for key, part in value.items()})
    return [_object(part) for part in value] if isinstance(value, list) else value


def _replies() -> Iterator[Any]:
    yield from (reply for reply, _, _ in REPLIES.values())
    yield from (item for items, _, _ in STREAMS.values() for item in items)
    mixture = Mixture(_REPLY, _REPLY_NAMES, _REPLY_VALUES)
    yield from (mixture.fields() for _ in range(8000))


def test_a_usual_reply_is_read_as_by_the_rule() -> None:
    """Its text, and that there is nothing else in it."""
    found = 0
    for value in _both(_replies()):
        text = usual_text(value)
        if text is not None:
            said = Said()
            said.adds(value)
            assert (said.texts, said.calls, said.refused) == ([text], [], False), value
            found += 1
    assert found > 1000
