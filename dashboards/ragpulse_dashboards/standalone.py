"""`ragpulse show TRACE --html`: one trace as one file that needs no collector, with secrets masked."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ragpulse_dashboards.assets import load_assets
from ragpulse_dashboards.evidence import context_views, find_sentences
from ragpulse_dashboards.markdown import render_answer
from ragpulse_dashboards.mount import environment
from ragpulse_dashboards.waterfall import waterfall

__all__ = ["redacted", "standalone"]

MASK: Final = "[redacted]"
_SECRETS: Final = re.compile(
    "|".join((
        r"\b(?:sk|pk|rk|rp|ghp|gho|xox[abprs])[-_][A-Za-z0-9_-]{16,}",  # provider and service keys
        r"\bAKIA[0-9A-Z]{16}\b",  # AWS access key ids
        r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}",  # JSON web tokens
        r"(?i:\bbearer\s+)[\w.~+/-]{16,}",
        r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",  # e-mail addresses
        r"\b\d(?:[ -]?\d){12,18}\b",  # card numbers
    ))
)  # fmt: skip


def standalone(answer: Mapping[str, Any]) -> str:
    """Return the answer of `GET traces/{id}` as a self-contained page: no script, no address is loaded."""
    shown = redacted(answer)
    sentences = find_sentences(reversed(shown["scores"]))
    contexts = context_views(shown["contexts"], sentences)
    assets = load_assets()
    return environment(assets).get_template("standalone.html").render(
        trace=shown["trace"],
        answer=render_answer(
            str(shown["trace"].get("response") or ""), sentences, [one.row for one in contexts if one.index is not None]
        ),
        contexts=contexts,
        scores=shown["scores"],
        rows=waterfall(shown["spans"]),
    )  # fmt: skip


def redacted(value: Any) -> Any:
    """Return JSON with keys, tokens, e-mail addresses and card numbers masked in every text; ids stay."""
    if isinstance(value, str):
        return _SECRETS.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: one if key in _IDS else redacted(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id", "version", "hash", "start_time", "created_at"})
