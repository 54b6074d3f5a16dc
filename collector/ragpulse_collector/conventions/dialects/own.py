"""Our own SDK: the `ragpulse.*` names, which win over all other vocabularies."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.rules import Span, rules
from ragpulse_collector.conventions.values import KINDS, one_of, text


def _sole(members: Any, span: Span) -> str | None:
    """Return the variant if the span has only one."""
    return text(next(iter(members.values())), span) if len(members) == 1 else None


RULES = rules(
    kind={names.SPAN_KIND: one_of(KINDS)},
    response_missing_reason={names.RESPONSE_MISSING_REASON: text},
    control_flow={names.CONTROL_FLOW: text},
    variant={
        names.VARIANT: text,
        names.VARIANT_PREFIX: _sole,
    },
)
