"""Our own SDK: the `ragpulse.*` names, which win over all other vocabularies.

What a decorated function was asked and returned wins, too, over what others set on its span (LiteLLM's callback, for
one). A text is sent as a text; JSON is the result of a tool or a step, or was recorded by an earlier version.
"""

from __future__ import annotations

from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.rules import Span, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_completion, response_of_output
from ragpulse_collector.conventions.values import KINDS, one_of, text


def _sole(members: Any, span: Span) -> str | None:
    """Return the variant if the span has only one."""
    return text(next(iter(members.values())), span) if len(members) == 1 else None


def _query(value: Any, span: Span) -> Any:
    return (query_of_input if span.attributes.get(names.INPUT_MIME_TYPE) == names.JSON else text)(value, span)


def _response(value: Any, span: Span) -> Any:
    mime = span.attributes.get(names.OUTPUT_MIME_TYPE)
    if mime != names.PLAIN_TEXT and value:
        return (response_of_output if mime == names.JSON else response_of_completion)(value, span)
    return value or None if type(value) is str else None


def _withheld(value: Any, _: Span) -> str | None:
    return shapes.WITHHELD if value is False else None


RULES = rules(
    kind={names.SPAN_KIND: one_of(KINDS)},
    response_missing_reason={
        names.RESPONSE_MISSING_REASON: text,
        names.CONTENT_CAPTURED: _withheld,
    },
    control_flow={names.CONTROL_FLOW: text},
    variant={
        names.VARIANT: text,
        names.VARIANT_PREFIX: _sole,
    },
) + rules(
    names.SPAN_KIND,
    query={
        names.RETRIEVAL_QUERY: text,
        names.RERANKER_QUERY: text,
        names.INPUT_VALUE: _query,
    },
    response={names.OUTPUT_VALUE: _response},
)
