"""What a sender's name of a count means, by the words in it: one table for every provider and every convention.

`cached_tokens`, `input_token_details.cache_read`, `cacheReadInputTokens` and `input_tokens.cached` are one figure. A
name with a word that is not in the table means nothing: `cache_miss_tokens`, `max_tokens`.
"""

import re
from collections.abc import Mapping, Set
from functools import lru_cache
from typing import Any, NamedTuple

from ragpulse import _names as names

from .values import fields_of

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_]+")
_ROLES = {
    **dict.fromkeys(
        ("token", "tokens", "count", "counts", "num", "detail", "details", "usage", "content", "experimental"), ""
    ),
    **dict.fromkeys(("input", "prompt"), "input"),
    **dict.fromkeys(("output", "completion", "candidates", "response", "generated", "generation"), "output"),
    **dict.fromkeys(("cache", "cached"), "cache"),
    **dict.fromkeys(("read", "hit"), "read"),
    **dict.fromkeys(("write", "creation", "created", "written"), "write"),
    **dict.fromkeys(("reasoning", "thought", "thoughts", "thinking"), "reasoning"),
    **dict.fromkeys(("text", "image", "video", "document"), "part"),
    **dict.fromkeys(("flex", "priority"), "tier"),
    "ephemeral": "",
    "5m": "minutes",
    "1h": "hour",
    **{role: role for role in ("audio", "tool", "use", "total", "eval")},
}
"""A word → what it says of a count: nothing, or which figure it is part of."""
_FIGURES = {
    frozenset(roles.split()): figure
    for figure, spellings in {
        names.INPUT_TOKENS: ("input", "input eval"),
        names.OUTPUT_TOKENS: ("output", "eval"),
        names.TOTAL_TOKENS: ("total",),
        names.CACHE_READ_TOKENS: ("cache", "cache read", "cache input", "cache read input"),
        names.CACHE_WRITE_TOKENS: ("cache write", "cache write input"),
        names.REASONING_TOKENS: ("reasoning", "reasoning output"),
        names.AUDIO_INPUT_TOKENS: ("audio", "audio input"),
        names.AUDIO_OUTPUT_TOKENS: ("audio output",),
        names.TOOL_TOKENS: ("tool use", "tool use input"),
    }.items()
    for roles in spellings
}  # fmt: skip
_PARTS = {names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.CACHE_READ_TOKENS}
_AUDIO = {names.INPUT_TOKENS: names.AUDIO_INPUT_TOKENS, names.OUTPUT_TOKENS: names.AUDIO_OUTPUT_TOKENS}
_KEPT = {"cache", "write", "input", "hour", "minutes"}
"""What is written to the cache, by how long it is kept; LangChain leaves out that it is the cache."""
_MAX_NAME = 100
_MAX_PARTS = 16
_MAX_NAMES = 50


class Meaning(NamedTuple):
    """The figure that a count is, and the figure that it is a part of: text, image, audio and video add up to it."""

    figure: str | None = None
    part_of: str | None = None


def _roles(name: str) -> Set[str]:
    return {_ROLES.get(word.lower(), "unknown") for word in _WORD.findall(name)} - {""}


@lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning:
    """What a count of this name means; its details are after a dot: `promptTokensDetails.AUDIO`."""
    roles = _roles(name)
    if len(roles) > 1:
        roles -= {"total"}
    if roles & {"cache", "reasoning"}:
        roles -= {"tier"}  # LangChain: `priority_cache_read`; the rest of the input is `priority`
    if roles & {"hour", "minutes"} and roles <= _KEPT:
        return Meaning(names.CACHE_WRITE_1H_TOKENS if "hour" in roles else None, names.CACHE_WRITE_TOKENS)
    modality = roles & {"part", "audio"}
    figure = _FIGURES.get(frozenset(roles - modality if modality != roles else roles))
    if not modality or modality == roles:
        return Meaning(figure)
    return Meaning(_AUDIO.get(figure or "") if "audio" in modality else None, figure if figure in _PARTS else None)


def figures_in(usage: Mapping[Any, Any]) -> dict[str, Any]:
    """The counts in a usage object and its details, by figure; one without a count is the sum of its parts."""
    counts: dict[str, Any] = {}
    parts: dict[str, int] = {}
    _read(usage, "", counts, parts)
    return counts | {figure: count for figure, count in parts.items() if not counts.get(figure)}


def _read(fields: Mapping[Any, Any], path: str, counts: dict[str, Any], parts: dict[str, int]) -> None:
    for key, figure, part_of in _places(path, tuple(fields)) if len(fields) < _MAX_NAMES else ():
        count = fields[key]
        if type(count) is not int:
            if count is None:
                continue
            if type(count) is not str and type(count) is not float:
                _read_details(count, f"{path}{key}.", counts, parts)
                continue
            count = _whole(count)
        if count < 0:
            continue
        if figure is not None and not counts.get(figure):
            counts[figure] = count
        if part_of is not None:
            parts[part_of] = parts.get(part_of, 0) + count


def _read_details(value: Any, path: str, counts: dict[str, Any], parts: dict[str, int]) -> None:
    """Read the details of a count; Google has a list of modalities, each with its count."""
    for part in value[:_MAX_PARTS] if isinstance(value, list) else (value,):
        fields = fields_of(part) if len(path) < _MAX_NAME else {}
        kind = fields.get("modality")
        if fields:
            _read(fields, f"{path}{getattr(kind, 'name', kind)}." if kind else path, counts, parts)


def _whole(count: str | float) -> int:
    """A count given as a text or with a fraction; negative if it is none."""
    if isinstance(count, str):
        return int(count) if count.isdecimal() and len(count) <= _MAX_NAME else -1
    return int(count) if 0 <= count < float("inf") else -1


@lru_cache(maxsize=256)
def _places(path: str, keys: tuple[Any, ...]) -> tuple[tuple[Any, str | None, str | None], ...]:
    """The names, below a path of details, that may have counts, and what these mean."""
    named = [(key, f"{path}{key}") for key in keys if len(path) + len(str(key)) <= _MAX_NAME]
    return tuple([(key, *meaning(name)) for key, name in named if "unknown" not in _roles(name)])
