"""Reads a judge's reply that is JSON, or nearly: the object itself, under the keys that were asked for."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ragpulse_evaluators.errors import Unreadable, unreadable

__all__ = ("folded_key", "is_json", "json_objects", "read_json", "read_model", "unwrapped")

Model = TypeVar("Model", bound=BaseModel)
_MAX_BRACES = 64
"""Braces tried that begin no object, so that a tower of them costs nothing."""
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}]|[A-Za-z]+', re.DOTALL)
"""The tokens of an object that is no strict JSON: strings, braces, bare words."""
_LITERALS = {"true": "True", "false": "False", "null": "None", "nan": "", "infinity": ""}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def json_objects(text: str) -> list[dict[str, Any]]:
    """Every JSON object in the text that is not empty, in order; objects within objects are not listed again.

    A trailing comma, single quotes, line breaks within strings and Python's True, False and None are accepted.
    """
    decoder = json.JSONDecoder(parse_constant=_no_constant, strict=False)
    objects: list[dict[str, Any]] = []
    position, tries = text.find("{"), 0
    while position >= 0 and tries < _MAX_BRACES:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = _lenient(text, position)
        objects += [value] if value else []
        tries += not value
        position = text.find("{", end)
    return objects


def _lenient(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """The object that begins at `start` read as a Python literal, and its end; None where it is none either."""
    pieces, depth, last = [], 0, start
    for piece in _PIECE.finditer(text, start):
        word = piece[0]
        depth += {"{": 1, "}": -1}.get(word, 0)
        if depth > _MAX_BRACES:
            break
        pieces += [text[last : piece.start()], _as_python(word)]
        last = piece.end()
        if depth == 0:
            return _literal("".join(pieces)), last
    return None, start + 1


def _as_python(word: str) -> str:
    return word.replace("\n", "\\n").replace("\r", "") if word[0] in "\"'" else _LITERALS.get(word.casefold(), word)


def _literal(text: str) -> dict[str, Any] | None:
    try:
        value = ast.literal_eval(text)
        return json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, dict) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def is_json(text: str) -> bool:
    """Whether a reply is meant as JSON: it holds an object, or begins as one (whose end may be missing)."""
    return text.lstrip("`json \n").startswith("{") or bool(json_objects(text))


def read_json(text: str) -> dict[str, Any]:
    """The one JSON object of the reply, fenced or bare; several that differ are unreadable."""
    objects = json_objects(text)
    if not objects or any(value != objects[0] for value in objects):
        unreadable("one JSON object", text)
    return objects[0]


def folded_key(key: str) -> str:
    """A key without regard to case, spaces and hyphens."""
    return key.strip().casefold().replace(" ", "_").replace("-", "_")


def unwrapped(reply: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The reply with folded keys; an object under the only key of another ("result", "evaluation") is read itself."""
    folded = {folded_key(key): value for key, value in reply.items()}
    while len(folded) == 1 and isinstance(inner := next(iter(folded.values())), dict):
        within = {folded_key(key): value for key, value in inner.items()}
        if folded.keys() & set(keys) and not within.keys() & set(keys):
            break
        folded = within
    return folded


def read_model(text: str, schema: type[Model]) -> Model:
    """The reply's JSON object as `schema`; raises `Unreadable` naming the first wrong field."""
    try:
        return schema.model_validate(read_json(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the object"
        raise Unreadable(f"{where}: {first['msg']}") from None
