"""Turns values of the application into plain, immutable snapshots, and runs its code as little as possible.

`repr` is never called: it may raise, be slow, or (a lazy query set) do work. Objects of unknown types become their
type's name. The walk is bounded in nodes and depth, so that a huge argument costs the caller microseconds.
"""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any
from uuid import UUID

from ragpulse.shapes import NOTHING_TEXTS, OBJECT_REPR

_MAX_NODES = 5_000
_MAX_JSON_TEXT = 1_048_576
_MAX_HASHED = 16 * 1_048_576
_MAX_DEPTH = 12
MAX_TEXT = 262_144
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[\w;=.+-]*;base64,([A-Za-z0-9+/=_-]*)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]+")
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType", "mediaType", "format")
"""Names of the media type beside `data`: an image, audio or a file in base64."""
_REPR = re.compile(OBJECT_REPR)
_NOTHING = re.compile(NOTHING_TEXTS)
_NOTHING_BEGINS = frozenset("nuN[(O")
TEXT_IS_ODD = frozenset("<nuN[(O")
"""How a text begins that may stand for a value without a text (`is_repr`)."""
_TEXTUAL = (datetime, date, time, timedelta, Decimal, UUID, PurePath)
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class JsonText(str):
    """A string that holds JSON, so that its MIME type is known when it is sent."""

    __slots__ = ()


class CutText(str):
    """The beginning of a long text, with the size and hash of the whole."""

    __slots__ = ("bytes", "sha256")
    bytes: int
    sha256: str


def bounded(text: str) -> str:
    """The text itself, or when it is longer than 256 KiB its beginning, the length and a hash of the whole.

    Done at once, so that long texts do not fill the queue. The hash covers the first 16 MiB.
    """
    if len(text) <= MAX_TEXT:
        return text
    text = without_files(text)
    if len(text) <= MAX_TEXT:
        return text
    data = text.encode("utf-8", "backslashreplace")
    cut = CutText(text[:MAX_TEXT])
    cut.bytes = len(data)
    cut.sha256 = hashlib.sha256(data[:_MAX_HASHED]).hexdigest()[:16]
    return cut


def without_files(text: str) -> str:
    """The text with a placeholder for each file that is in it as a `data:` URL: media type, size and hash."""
    return _DATA_URL.sub(lambda match: placeholder(match[1], match[2]), text) if ";base64," in text else text


def placeholder(media_type: str | None, data: str | bytes) -> str:
    """Stands for a file's content (bytes, or base64 text): its media type, size and hash."""
    try:
        content = (
            base64.b64decode(data, b"-_" if "-" in data or "_" in data else None) if isinstance(data, str) else data
        )
    except ValueError:
        content = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return f"<{media_type or 'file'}, {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()[:16]}>"


def well_formed(text: str) -> str:
    """The text with `?` for each lone surrogate: no UTF-8, and so no JSON parser, accepts one."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def type_name(value: object) -> str:
    """`<module.Class>`, for values that have no plain form."""
    cls = type(value)
    return f"<{cls.__module__}.{cls.__qualname__}>"


def value_of(source: Any, name: str) -> Any:
    """An entry of a mapping or an attribute of an object; None where there is none or reading it raises.

    A mock of `unittest` has every attribute, and counts how those that it invents are used: only set ones are read.
    """
    if type(source) is dict:
        return source.get(name)
    cls: Any = type(source)
    try:
        return _read_by(cls)(source, name)
    except Exception:  # noqa: BLE001 - properties of foreign objects may raise anything
        return None


@lru_cache(maxsize=1024)
def _read_by(cls: type) -> Callable[[Any, str], Any]:
    """How one value of a class's objects is read."""
    if cls.__module__ == "unittest.mock":
        return lambda source, name: vars(source).get(name)
    if issubclass(cls, Mapping):
        return lambda source, name: source.get(name)
    is_model = getattr(getattr(cls, "__getattr__", None), "__module__", None) == "pydantic.main"
    return _of_model if is_model else lambda source, name: getattr(source, name, None)


def _of_model(source: Any, name: str) -> Any:
    """As `getattr`, which takes long to find that a model of pydantic does not have an attribute."""
    fields = vars(source)
    if name in fields:
        return fields[name]
    cls: Any = type(source)
    is_possible = source.__pydantic_extra__ or source.__pydantic_private__ or has_own(cls, name)
    return getattr(source, name, None) if is_possible else None


@lru_cache(maxsize=4096)
def has_own(cls: type, name: str) -> bool:
    """Whether a class itself has an attribute."""
    return hasattr(cls, name)


def computes_any(cls: Any) -> bool:
    """Whether objects of a class may have attributes that the class does not name; pydantic's names its fields."""
    getter = getattr(getattr(cls, "__getattr__", None), "__module__", "pydantic.main")
    return getter != "pydantic.main" or bool(getattr(cls, "__private_attributes__", ()))


def parsed(text: Any) -> Any:
    """The value of a text in JSON; anything else stays as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def fields_of(source: Any) -> Mapping[str, Any]:
    """The named values of a dict or an object, without calling properties or methods; empty for anything else."""
    if type(source) is dict:
        return source
    cls: Any = type(source)
    try:
        return _fields_by(cls)(source)
    except Exception:  # noqa: BLE001 - slots, or a foreign mapping that raises
        return _slots_of(source)


@lru_cache(maxsize=1024)
def _fields_by(cls: type) -> Callable[[Any], Mapping[str, Any]]:
    """How the named values of a class's objects are read."""
    if issubclass(cls, (str, bytes, list, type(None))):
        return lambda source: {}
    if issubclass(cls, Mapping):
        return dict
    if issubclass(cls, tuple):
        return lambda source: source._asdict() if hasattr(cls, "_asdict") else {}
    if hasattr(cls, "ListFields"):  # a message of Protocol Buffers: the fields that are set
        return lambda message: {field.name: value for field, value in message.ListFields()}
    return _with_extra if hasattr(cls, "__pydantic_extra__") else _own


def _own(source: Any) -> Mapping[str, Any]:
    fields = vars(source)
    return fields_of(fields["_pb"]) if "_pb" in fields else fields  # proto-plus, in clients of Google Cloud


def _with_extra(source: Any) -> Mapping[str, Any]:
    fields, extra = vars(source), source.__pydantic_extra__
    return {**fields, **extra} if extra else fields


def _slots_of(source: Any) -> Mapping[str, Any]:
    names = [name for cls in type(source).__mro__ for name in _listed(cls.__dict__.get("__slots__", ()))]
    return {name: value for name in names if not name.startswith("_") and (value := value_of(source, name)) is not None}


def _listed(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else [str(name) for name in slots]


def to_json(value: Any) -> JsonText:
    """A JSON snapshot of any value."""
    return JsonText(_dumps(plain(value)))


def json_or_none(value: Any) -> JsonText | None:
    """JSON of a value; None for an object of which nothing is known but its type, and for None."""
    plain_value = plain(value)
    return None if plain_value is None or plain_value == type_name(value) else JsonText(_dumps(plain_value))


def is_repr(text: str) -> bool:
    """Whether a text is the spelling of a value that has none: `<generator object answer at 0x7f>`, `null`, ..."""
    if text[:1] == "<":
        return text[-1:] == ">" and len(text) < 1000 and _REPR.fullmatch(text) is not None
    return text[:1] in _NOTHING_BEGINS and _NOTHING.fullmatch(text) is not None


def plain(value: Any) -> Any:
    """A copy of `value` made of dict, list, str, int, float, bool and None only."""
    return _PlainCopy().visit(value, 0)


class _PlainCopy:
    def __init__(self) -> None:
        self._nodes_left = _MAX_NODES
        self._characters_left = _MAX_JSON_TEXT

    def visit(self, value: Any, depth: int) -> Any:
        if type(value) is str:
            return self._text(value)
        if value is None or type(value) in (int, bool):
            return value
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth > _MAX_DEPTH:
            return "..."
        try:
            return self._compound(value, depth + 1)
        except Exception:  # noqa: BLE001 - foreign containers may raise anything while being read
            return type_name(value)

    def _text(self, text: str) -> str:
        text = well_formed(without_files(text))
        self._characters_left -= len(text)
        if self._characters_left >= 0:
            return text
        return f"{text[:1000]}... [{len(text)} characters]"

    def _compound(self, value: Any, depth: int) -> Any:
        if isinstance(value, float):
            return float(value) if float("-inf") < value < float("inf") else None
        if isinstance(value, Enum):
            return self.visit(value.value, depth)
        if isinstance(value, (str, int, *_TEXTUAL)):
            return int(value) if isinstance(value, int) else self._text(str(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"<{len(value)} bytes>"
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (Sequence, Set)):
            return self._items(value, depth)
        return self._fields(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        data = value.get("data") if type(value) is dict else None
        if isinstance(data, bytes) or (type(data) is str and _BASE64.fullmatch(data)):
            media_type = next((value[key] for key in _MEDIA_TYPES if isinstance(value.get(key), str)), None)
            if media_type is not None:
                value = {**value, "data": placeholder(media_type, data)}
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if self._nodes_left <= 0:
                copy["..."] = "..."
                break
            copy[well_formed(key) if type(key) is str else str(plain(key))] = self.visit(item, depth)
        return copy

    def _items(self, value: Any, depth: int) -> Any:
        copy: list[Any] = []
        for item in value:
            self._nodes_left -= 1
            if self._nodes_left <= 0:
                copy.append("...")
                break
            copy.append(self.visit(item, depth))
        return copy

    def _fields(self, value: Any, depth: int) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._mapping({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, depth)
        if isinstance(getattr(type(value), "model_fields", None), dict):
            # Names with an underscore are put there by others: `_raw_response` of instructor.
            return self._mapping({name: item for name, item in vars(value).items() if name[0] != "_"}, depth)
        scalar = value_of(value, "item")  # numpy and torch scalars
        if value_of(value, "shape") == () and callable(scalar):
            return self.visit(scalar(), depth)
        return type_name(value)
