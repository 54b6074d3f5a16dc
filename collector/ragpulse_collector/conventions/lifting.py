"""A text lives once: what went into query, response or contexts is taken out of the raw attributes and referenced.

Nothing is lifted unless it can be rebuilt to the byte. References, in the stored attributes:

    {"$lifted": "query"}                                  the whole value
    {"$lifted": "contexts", "rank": 3}                    the text of the third context
    {"$json": template, "style": "compact"}               a JSON text with such references inside
    {"$lifted": "contexts", "keys": [...], "style": ...}  a JSON list of documents that the contexts hold in full
    {"$bytes": "aGk="}, {"$dropped": "vector", ...}       bytes in base64; an embedding that was not kept

A sender's own key beginning with "$" inside a structured value is stored with a second "$".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any

import orjson

from ragpulse_collector.otlp import Vector
from ragpulse_collector.records import ContextRecord

Path = tuple[Any, ...]


def _compact(value: Any) -> str:
    return orjson.dumps(value).decode()


STYLES: dict[str, Callable[[Any], str]] = {
    "compact": _compact,
    "spaced": json.dumps,
    "spaced-unicode": lambda value: json.dumps(value, ensure_ascii=False),
    "tight": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "tight-ascii": lambda value: json.dumps(value, separators=(",", ":")),
}
"""How senders write JSON: JavaScript and orjson, Python's default, and its variants."""
PLAIN = frozenset({str, int, float, bool, bytes, type(None), Vector})
_KEYS = {"id": "id", "score": "score", "content": "text", "metadata": "metadata"}


def attributes_text(attributes: Mapping[str, Any], replaced: Mapping[str, Any]) -> str:
    """Return the raw attributes as JSON text, lifted values replaced by their references."""
    if not PLAIN.issuperset(map(type, attributes.values())):
        attributes = {name: escape(value) for name, value in attributes.items()}
    return json_text({**attributes, **replaced} if replaced else attributes)


def json_text(value: Any) -> str:
    """Return JSON text; bytes become references, NaN and infinities null."""
    return _json(value).decode()


def json_objects(columns: Mapping[str, Sequence[Any]], size: int) -> list[str]:
    """Return each row of columns as the text of a JSON object; what all rows say is written once."""
    pieces: list[Iterable[bytes]] = []
    shared = b"{"
    for name, column in columns.items():
        shared += _json(name) + b":"
        if _is_shared(column):
            shared += _json(column[0])
        else:
            pieces += repeat(shared), map(_json, column)
            shared = b""
        shared += b","
    pieces.append(repeat(shared.removesuffix(b",") + b"}", size))
    return [b"".join(row).decode() for row in zip(*pieces, strict=False)]


def _is_shared(column: Sequence[Any]) -> bool:
    """Tell whether all values are one; 1, 1.0 and true are not, equal though they are."""
    first = column[0]
    return column.count(first) == len(column) and (type(first) is str or all(map(is_, column, repeat(first))))


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_bytes_reference)


def restore_attributes(
    attributes: str, query: str | None, response: str | None, contexts: Sequence[ContextRecord] | None
) -> dict[str, Any]:
    """Return the attributes as the client sent them, given the texts that were lifted out of them.

    What JSON cannot say stays a reference: `{"$bytes": base64}` and vectors that were not kept.
    """
    restorer = _Restorer(query, response, contexts)
    return {name: restorer.restore(value) for name, value in orjson.loads(attributes).items()}


def wire_attributes(
    attributes: str, query: str | None, response: str | None, contexts: Sequence[ContextRecord] | None
) -> dict[str, Any]:
    """Return the attributes as they came over the wire, bytes as bytes."""
    restorer = _Restorer(query, response, contexts, wire=True)
    return {name: restorer.restore(value) for name, value in orjson.loads(attributes).items()}


def lifted_json(value: Any, parsed: Any, path: Path, reference: Mapping[str, Any]) -> Any:
    """Return the template of a JSON text (or structured value) with a reference at `path`; None if it cannot be."""
    return lifted_many(value, parsed, [(path, reference)])


def lifted_many(value: Any, parsed: Any, references: Sequence[tuple[Path, Mapping[str, Any]]]) -> Any:
    """Return the template with several references; None where the value could not be rebuilt from it to the byte."""
    if not isinstance(value, str):
        return _replace_all(escape(value), [(tuple(map(_escaped, path)), reference) for path, reference in references])
    style = None if '"$' in value else style_of(value, parsed)
    return None if style is None else {"$json": _replace_all(parsed, references), "style": style}


def style_of(text: str, value: Any) -> str | None:
    """Return the style that writes `value` as exactly `text`, or None."""
    spaced = '": ' in text[:64]
    names = ("spaced", "spaced-unicode") if spaced else ("compact", "tight", "tight-ascii")
    try:
        return next((name for name in names if STYLES[name](value) == text), None)
    except (TypeError, ValueError, RecursionError):
        return None


def escape(value: Any) -> Any:
    """Return a structured value whose own keys cannot be taken for references."""
    if type(value) is dict:
        return {_escaped(key): escape(item) for key, item in value.items()}
    return [escape(item) for item in value] if type(value) is list else value


def _escaped(key: Any) -> Any:
    return f"${key}" if isinstance(key, str) and key[:1] == "$" else key


def _bytes_reference(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError


def _replace_all(value: Any, references: Sequence[tuple[Path, Mapping[str, Any]]]) -> Any:
    """Put references at their paths, in place: `value` was parsed or copied for it."""
    for path, reference in references:
        if not path:
            return reference
        *above, last = path
        inner = value
        for key in above:
            inner = inner[key]
        inner[last] = reference
    return value


def _document(record: ContextRecord, keys: Sequence[str]) -> dict[str, Any]:
    document = {key: getattr(record, _KEYS[key]) for key in keys}
    if document.get("metadata") is not None:
        document["metadata"] = orjson.loads(document["metadata"])
    return document


class _Restorer:
    """Puts lifted texts back."""

    def __init__(
        self,
        query: str | None,
        response: str | None,
        contexts: Sequence[ContextRecord] | None,
        *,
        wire: bool = False,
    ) -> None:
        self._texts = {"query": query, "response": response}
        self._records = {record.rank: record for record in contexts or ()}
        self._wire = wire

    def restore(self, value: Any) -> Any:
        if type(value) is list:
            return [self.restore(item) for item in value]
        if type(value) is not dict:
            return value
        if "$lifted" in value:
            return self._lifted(value)
        if "$json" in value:
            return STYLES[value["style"]](self.restore(value["$json"]))
        if "$bytes" in value:
            return base64.b64decode(value["$bytes"]) if self._wire else value
        if "$dropped" in value:
            return Vector(value["length"])
        return {key[1:] if key[:2] == "$$" else key: self.restore(item) for key, item in value.items()}

    def _lifted(self, reference: Mapping[str, Any]) -> str | None:
        if reference["$lifted"] != "contexts":
            return self._texts.get(reference["$lifted"])
        if "keys" in reference:
            documents = [_document(record, reference["keys"]) for _, record in sorted(self._records.items())]
            return STYLES[reference["style"]](documents)
        record = self._records.get(reference["rank"])
        return record.text if record else None
