"""Finds the text in the items of a stream: labelled texts, server-sent events, lines of JSON, cumulative texts."""

from typing import Any

from ragpulse._names import DOCUMENT_LIST_KEYS

from .openers import LANGGRAPH_MODES
from .replies import Said, data_text, piece_in, said_in
from .values import parsed

_TEXT_LABELS = frozenset({"token", "chunk", "delta", "content", "text", "answer", "message", "response", "output"})
_OTHER_LABELS = frozenset({*DOCUMENT_LIST_KEYS, "sources", "citations", "usage", "metadata", "status", "done", "error"})
_EVENT_FIELDS = ("data:", "event:", "id:", "retry:", ":")


def piece(item: Any) -> Said:
    """What one item of a stream says; it may be labelled: `("token", "Pa")`, `{"token": "Pa"}`."""
    if type(item) in (tuple, list) and len(item) == 2 and isinstance(item[0], str):
        label, value = item
        if isinstance(value, str) and label in _TEXT_LABELS:
            return said_in(value)
        is_label = isinstance(value, str) and label.isidentifier() and label not in LANGGRAPH_MODES
        if is_label or label in _OTHER_LABELS:
            return Said()
    said = said_in(item)
    if type(item) is dict and not said.texts and (text := piece_in(item)) is not None:
        said.texts.append(text)
    return said


def without_frames(text: str, *, is_lines: bool) -> str:
    """The text of a stream without its frames: server-sent events, lines of JSON, or none."""
    if text.startswith(_EVENT_FIELDS) and ("\n\n" in text or "\r\n\r\n" in text):
        return _event_stream_text(text)
    return "".join(map(data_text, text.splitlines())) if is_lines else text


def _event_stream_text(text: str) -> str:
    """The text in server-sent events: of each its data, or the reply in its data where that is JSON."""
    texts = []
    for frame in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in frame.split("\n") if line.startswith("data:")]
        texts.append(data_text("\n".join(lines)))
    return "".join(texts)


def is_json_line(text: str) -> bool:
    """Whether an item of a stream is a whole line of newline-delimited JSON; words of a model are not."""
    return text[:1] == "{" and text[-1:] == "\n" and isinstance(parsed(text), dict)


class CumulativeText:
    """Recognizes a stream whose items each repeat the whole text: `stream_text()` of pydantic-ai, Gradio."""

    __slots__ = ("_count", "_first", "_last")

    def __init__(self) -> None:
        self._first = self._last = ""
        self._count = 0

    def add(self, text: str) -> bool:
        """Adds an item; returns whether the stream may still be cumulative."""
        if text:
            self._first = self._first or text
            self._count += 1
            repeats = text.startswith(self._last)
            self._last = text
            return repeats
        return True

    def whole(self) -> str | None:
        """The last item of a cumulative stream, or None. Two short pieces may begin alike, so they are not enough."""
        grew = len(self._last) > len(self._first)
        return self._last if grew and (self._count > 2 or len(self._first) >= 8) else None
