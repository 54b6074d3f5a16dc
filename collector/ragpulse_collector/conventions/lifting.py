"""Stores each text once: references in the raw attributes replace the texts of query, response and contexts.

A text is lifted only if it can be rebuilt to the byte. References, in the stored attributes:

    {"$lifted": "query"}                                  the whole value
    {"$lifted": "contexts", "rank": 3}                    the text of the third context
    {"$text": ["[{\"content\": ", {...}, "}]"]}            a JSON text, with such references in place of strings
    {"$lifted": "contexts", "keys": [...], "style": ...}  a JSON list of documents that the contexts store completely
    {"$bytes": "aGk="}, {"$dropped": "vector", ...}       bytes in base64; an embedding that was not stored

`"ascii": true` in a reference inside `$text`: the string is written in ASCII only. Stores of earlier versions have
`{"$json": template, "style": ...}` instead, a parsed JSON text with references.

A sender's own key that begins with "$" inside a structured value gets a second "$".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import Any

import orjson

from ragpulse_collector.otlp.wire import Vector
from ragpulse_collector.records import ContextRecord

Reference = dict[str, Any]


def _compact(value: Any) -> str:
    return orjson.dumps(value).decode()


STYLES: dict[str, Callable[[Any], str]] = {
    "compact": _compact,
    "spaced": json.dumps,
    "spaced-unicode": lambda value: json.dumps(value, ensure_ascii=False),
    "tight": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "tight-ascii": lambda value: json.dumps(value, separators=(",", ":")),
}
"""The ways in which senders write JSON: JavaScript and orjson, Python's default, and its variants."""
_BEFORE, _AFTER = ("", "[", "{", ":", ",", " ", "\n"), ("", "]", "}", ":", ",", " ", "\n")
"""The characters around a whole string in JSON."""
_NONE: dict[str, Reference] = {}
MAX_MISSES = 64
PLAIN = frozenset({str, int, float, bool, bytes, type(None), Vector})
_KEYS = {"id": "id", "score": "score", "content": "text", "metadata": "metadata"}


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Return attributes as JSON text."""
    return json_text({name: escape(value) for name, value in attributes.items()})


def json_text(value: Any) -> str:
    """Return JSON text; bytes become references, NaN and infinities null."""
    return _json(value).decode()


def json_objects(columns: Mapping[str, Sequence[Any]], size: int) -> list[str]:
    """Return each row of columns as the text of a JSON object; values that all rows share are encoded once."""
    pieces: list[Iterable[bytes]] = []
    shared = bytearray(b"{")
    for name, column in columns.items():
        shared += _json(name) + b":"
        if _is_shared(column):
            shared += _json(column[0])
        else:
            pieces += repeat(bytes(shared)), map(orjson.dumps, column, repeat(_bytes_reference))
            shared = bytearray()
        shared += b","
    pieces.append(repeat(bytes(shared).removesuffix(b",") + b"}", size))
    return [b"".join(row).decode() for row in zip(*pieces, strict=False)]


def _is_shared(column: Sequence[Any]) -> bool:
    """Whether all values are the same; 1, 1.0 and true are equal but not the same."""
    first = column[0]
    return column.count(first) == len(column) and (type(first) is str or all(map(is_, column, repeat(first))))


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_bytes_reference)


def restore_attributes(
    attributes: str,
    query: str | None,
    response: str | None,
    contexts: Sequence[ContextRecord] | None,
    *,
    with_bytes: bool = False,
) -> dict[str, Any]:
    """Return the attributes as the client sent them, given the texts that were lifted out of them.

    What JSON cannot express stays a reference: vectors that were not stored and, unless `with_bytes`, bytes
    (`{"$bytes": base64}`).
    """
    records = {record.rank: record for record in contexts or ()}
    restorer = _Restorer({"query": query, "response": response}, records, with_bytes)
    return {name: restorer.restore(value) for name, value in orjson.loads(attributes).items()}


def cut(value: Any, texts: Iterable[tuple[str, Reference]]) -> Any:
    """Return a JSON text or structured value with references for these texts, in order; None where none is.

    Each text that is not found costs a search to the end, so the others stay in the value after MAX_MISSES of them.
    """
    if not isinstance(value, str):
        return escape(value, dict(texts))
    pieces: list[Any] = []
    end = misses = 0
    for text, reference in texts:
        start, quoted = _find(value, text, end)
        if start >= 0:
            ascii_only = {} if quoted.isascii() == text.isascii() else {"ascii": True}
            pieces += value[end:start], reference | ascii_only
            end = start + len(quoted)
        elif (misses := misses + 1) >= MAX_MISSES:
            break
    return {"$text": [*pieces, value[end:]]} if pieces else None


def _find(value: str, text: str, start: int) -> tuple[int, str]:
    """Return the start of a whole string in a JSON text, and its spelling; -1 if the text does not contain it."""
    for write in (_compact,) if text.isascii() else (_compact, json.dumps):
        quoted = write(text)
        position = value.find(quoted, start)
        end = position + len(quoted)
        if position >= 0 and value[position - 1 : position] in _BEFORE and value[end : end + 1] in _AFTER:
            return position, quoted
    return -1, ""


def style_of(text: str, value: Any) -> str | None:
    """Return the style that writes `value` as exactly `text`, or None."""
    spaced = '": ' in text[:64]
    names = ("spaced", "spaced-unicode") if spaced else ("compact", "tight", "tight-ascii")
    try:
        return next((name for name in names if STYLES[name](value) == text), None)
    except (TypeError, ValueError, RecursionError):
        return None


def escape(value: Any, references: Mapping[str, Reference] = _NONE) -> Any:
    """Return a structured value with its own keys escaped, and with these references for its texts."""
    if type(value) is dict:
        return {_escaped(key): escape(item, references) for key, item in value.items()}
    if type(value) is list:
        return [escape(item, references) for item in value]
    return references.get(value, value) if type(value) is str else value


def _escaped(key: Any) -> Any:
    return f"${key}" if isinstance(key, str) and key[:1] == "$" else key


def _bytes_reference(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError


def _document(record: ContextRecord, keys: Sequence[str]) -> dict[str, Any]:
    document = {key: getattr(record, _KEYS[key]) for key in keys}
    if document.get("metadata") is not None:
        document["metadata"] = orjson.loads(document["metadata"])
    return document


@dataclass(frozen=True)
class _Restorer:
    """Restores lifted texts."""

    texts: Mapping[str, str | None]
    records: Mapping[int, ContextRecord]
    with_bytes: bool

    def restore(self, value: Any) -> Any:
        if type(value) is list:
            return [self.restore(item) for item in value]
        if type(value) is not dict:
            return value
        if "$lifted" in value:
            return self._lifted(value)
        if "$text" in value:
            return "".join(map(self._piece, value["$text"]))
        if "$json" in value:
            return STYLES[value["style"]](self.restore(value["$json"]))
        if "$bytes" in value:
            return base64.b64decode(value["$bytes"]) if self.with_bytes else value
        if "$dropped" in value:
            return Vector(value["length"])
        return {key[1:] if key[:2] == "$$" else key: self.restore(item) for key, item in value.items()}

    def _piece(self, piece: Any) -> str:
        if type(piece) is str:
            return piece
        write = json.dumps if piece.get("ascii") else _compact
        return write(self._lifted(piece))

    def _lifted(self, reference: Mapping[str, Any]) -> str | None:
        if reference["$lifted"] != "contexts":
            return self.texts.get(reference["$lifted"])
        if "keys" in reference:
            documents = [_document(record, reference["keys"]) for _, record in sorted(self.records.items())]
            return STYLES[reference["style"]](documents)
        record = self.records.get(reference["rank"])
        return record.text if record else None
