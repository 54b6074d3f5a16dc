"""Reads the parts of one hit by their names: id, score, text and metadata, for every library."""

import re
from collections.abc import Mapping, Sequence, Set, ValuesView
from operator import itemgetter
from typing import Any

from ragpulse import _names as names

from .values import fields_of, plain, to_json, type_name, value_of

Parts = tuple[str | None, float | None, str | None, dict[Any, Any]]
"""Id, score, text and metadata of a hit."""
_TEXTS, _IDS, _FIELDS = map(frozenset, (names.DOCUMENT_TEXT_KEYS, names.DOCUMENT_ID_KEYS, names.DOCUMENT_FIELD_KEYS))
_ALL = _TEXTS | _IDS | {*names.DOCUMENT_SOURCE_KEYS, *names.DOCUMENT_SCORE_KEYS, *names.DOCUMENT_DISTANCE_KEYS}
_GENERATED = re.compile(r"\d+|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{64}")
"""An id that a library or a store makes where the application gives none: a number, a UUID, a SHA-256."""


def parts_of(hit: Any, field: str | None = None) -> Parts:
    """Id, score, text and metadata of a hit, by name: its own, those of the document in it, those in the metadata.

    The metadata also get the name of the document and the distance where the hit has them beside it.
    """
    found = _part((hit,), names.DOCUMENT_FIELD_KEYS)
    metadata = _part((hit, found), names.DOCUMENT_METADATA_KEYS)
    sources = [hit, *[source for source in (found, metadata) if source is not None]]
    text = next((text for source in sources if (text := text_of(source, field)) is not None), None)
    parts = [_fields(source) for source in sources]
    if text is None and field is None and isinstance(found, Mapping):
        text = max([value for value in found.values() if isinstance(value, str)], key=len, default=None)
    identity, score = own_id(parts), _number_in(parts, names.DOCUMENT_SCORE_KEYS)
    distance = _number_in(parts, names.DOCUMENT_DISTANCE_KEYS) if score is None else None
    known: dict[Any, Any] = {key: parts[0][key] for key in names.DOCUMENT_SOURCE_KEYS if type(parts[0].get(key)) is str}
    known |= {} if distance is None else {"distance": distance}
    if isinstance(metadata, Mapping):
        return identity, score, text, {**known, **metadata}
    others = found if isinstance(found, Mapping) else {}
    others = {
        key: value
        for key, value in others.items()
        if value is not text and value is not score and not (isinstance(value, (str, int)) and str(value) == identity)
    }
    return identity, score, text, {**known, **others}


def _part(sources: Sequence[Any], keys: Sequence[str]) -> Any:
    """The first value under one of the keys that has parts of its own."""
    values = (value_of(source, key) for source in sources if source is not None for key in keys)
    scalars = (str, int, float)
    return next(
        (
            value
            for value in values
            if not (value is None or isinstance(value, scalars) or callable(value) or listed(value))
        ),
        None,
    )


def _fields(source: Any) -> Mapping[Any, Any]:
    """The named values of a hit; where they are not enough, with those that its class computes."""
    if isinstance(source, Mapping):
        return source
    own = fields_of(source)
    is_enough = not _FIELDS.isdisjoint(own) or not (_TEXTS.isdisjoint(own) or _IDS.isdisjoint(own))
    return own if is_enough else {name: value_of(source, name) for name in _ALL}


def is_given(identity: str | None) -> bool:
    """Whether an application gave the id; a number, a UUID or a SHA-256 is generated where it gives none."""
    return identity is not None and not _GENERATED.fullmatch(identity)


def own_id(parts: Sequence[Mapping[Any, Any]]) -> str | None:
    """The id of the passage that the application gave, else one that was generated, else the id of its document."""
    ids = [
        (key in names.DOCUMENT_PARENT_KEYS, identity)
        for part in parts
        for key in names.DOCUMENT_ID_KEYS
        if part.get(key) is not None and (identity := _identity(part[key]))
    ]
    given = next((identity for is_parent, identity in ids if not is_parent and is_given(identity)), None)
    return given or (min(ids, key=itemgetter(0))[1] if ids else None)


def _identity(value: Any) -> str | None:
    """An id as text: a UUID or number as it is written, an ObjectId of MongoDB by its text, else as JSON."""
    if type(value) is str:
        return value
    identity = plain(value)
    if identity == type_name(value):
        return str(value) if type(value).__name__ == "ObjectId" else None
    return identity if isinstance(identity, str) else str(identity) if isinstance(identity, int) else to_json(identity)


def text_of(source: Any, field: str | None = None) -> str | None:
    """The text of a document under a usual name, or in this field: a text, or the `text` of its part or parts."""
    for key in names.DOCUMENT_TEXT_KEYS if field is None else (field,):
        found = value_of(source, key)
        if found is None:
            continue
        if isinstance(found, str):
            return found
        if isinstance(found, Mapping) and isinstance(found.get("text"), str):  # Bedrock
            return str(found["text"])
        if isinstance(found, list) and found and None not in (texts := [_part_text(part) for part in found]):
            return "\n".join(texts)  # type: ignore[arg-type]
    get_content = None if field or isinstance(source, Mapping) else value_of(source, "get_content")
    if callable(get_content):
        try:
            content = get_content()
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return content if isinstance(content, str) else None
    return None


def _part_text(part: Any) -> str | None:
    text = part if isinstance(part, str) else value_of(part, "text")
    return text if isinstance(text, str) else None


def _number_in(parts: Sequence[Mapping[Any, Any]], keys: Sequence[str]) -> float | None:
    values = (number(part.get(key)) for part in parts for key in keys)
    return next((value for value in values if value is not None), None)


def number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if value is None or isinstance(value, (bytes, bool)):
        return None
    try:
        return float(value) if isinstance(value, str) or hasattr(value, "__float__") else None
    except Exception:  # noqa: BLE001 - e.g. an array of several numbers: not a score
        return None


def listed(value: Any) -> Sequence[Any] | None:
    """The items of a list, an array or a column of a table; None for anything else."""
    if type(value) is list:
        return value
    if value is None or isinstance(value, (str, dict, int, float, bytes, bytearray, memoryview, Mapping)):
        return None
    if isinstance(value, (list, tuple)):
        return None if hasattr(type(value), "_asdict") else value
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(value)
    method = value_of(value, "to_pylist")
    if value_of(value, "dtype") is not None:
        method = value_of(value, "tolist") or value_of(value, "to_list")
    items = method() if callable(method) and value_of(value, "columns") is None else None
    return items if isinstance(items, list) else None
