"""What only templates print, and the filters of templates; figures and times are `ragpulse_collector.words`."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from ragpulse_collector.store.queries.scored_traces import TraceScore
from ragpulse_collector.store.queries.trace_answers import SpanScore
from ragpulse_collector.store.queries.traces import TraceRow
from ragpulse_collector.words import half_width
from ragpulse_collector.words.figures import (
    by_unit,
    compact,
    count,
    counted,
    dimension,
    estimate,
    judge_name,
    metric_name,
    ms,
    p_value,
    percent,
    ratio,
    rests_on,
    seconds,
    sentence,
    short,
    signed,
    size,
    snippet,
    spaced,
    title,
    unit_of,
    usd,
    worded,
)
from ragpulse_collector.words.times import clock, iso, minute, typed, when, zoned

Judged = TypeVar("Judged", SpanScore, TraceScore)
_OVERRIDES = dict.fromkeys((0x202D, 0x202E), "\ufffd")
_NO_ANSWER = {
    "stored_elsewhere": "content stored elsewhere",
    "withheld": "content withheld by the application",
    "tool_calls": "no text: the model called tools",
    "filtered": "filtered by the provider",
    "refused_by_provider": "refused by the provider",
    "no_choice": "the provider returned no choice",
    "cut": "cut before the first text",
    "nothing": "the application returned nothing",
    "unread": "the application's result could not be read",
}


def visible(value: Any) -> Any:
    """What a template prints: a time as the API writes it; a text with its direction overrides made visible."""
    if isinstance(value, datetime):
        return iso(value)
    return value.translate(_OVERRIDES) if isinstance(value, str) and not value.isascii() else value


def no_answer(trace: TraceRow) -> str:
    """Why a trace has no text to show as its answer."""
    if trace.response is not None:
        return "the answer is empty"
    reason = trace.response_missing_reason
    if reason:
        return _NO_ANSWER.get(reason) or reason.replace("_", " ")
    return "ended in an error" if trace.error else "no answer recorded"


def around(text: str | None, words: str | None, length: int, room: int) -> list[str]:
    """A text from its first word of a search on, if that lies behind `room` characters; every second part is a word."""
    named = [re.escape(quoted or word) for quoted, word in re.findall(r'"([^"]+)"|([^\s"]+)', words or "")]
    pattern, start = re.compile(f"({'|'.join(named)})" if named else r"(\Z)", re.IGNORECASE), 0
    found = pattern.search(text or "")
    if found and found[0] and text and found.end() > room:
        start = max(text.rfind(" ", 0, max(0, found.start() - room // 4)) + 1, found.start() - room)
    part = ("…" if start else "") + snippet((text or "")[start:], length)
    return pattern.split(part) if named else [part]


def as_judged(name: str, score: Judged) -> Judged:
    """A score as pages mark it: a thumb up or down passes or fails an answer like a check."""
    is_thumb = name.removeprefix("feedback:") == "thumbs"
    return replace(score, passing=(score.normalized or 0.0) > 0.0) if is_thumb else score


def urlencode(value: Any) -> str:
    """A value as one part of a URL, slashes included; a lone surrogate becomes a question mark."""
    text = iso(value) if isinstance(value, datetime) else "" if value is None else str(value)
    return quote(text, safe="", errors="replace")


def readable(value: Any) -> str:
    """A value as text; JSON, also inside a text, is indented."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value) if value[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            parsed = None
        if parsed is None:
            return value
        value = parsed
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


TEMPLATE_FILTERS: dict[str, Callable[..., str | list[str]]] = {
    show.__name__: show
    for show in (
        count, compact, ratio, percent, ms, seconds, usd, size, signed, p_value, when, minute, clock, zoned, typed,
        estimate, rests_on, snippet, worded, short, by_unit, unit_of, metric_name, title, dimension, sentence, counted,
        spaced, readable, urlencode, no_answer, iso, half_width, around, judge_name,
    )
}  # fmt: skip
