"""Our own SDK: the `ragpulse.*` names, which win over all other vocabularies.

What a decorated function was asked and returned wins, too, over what others set on its span (LiteLLM's callback, for
one). A text is sent as a text; JSON is the result of a tool or a step, or was recorded by an earlier version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.dialects.openinference import plain_texts
from ragpulse_collector.conventions.rules import WITHOUT_RESPONSE, Kinds, SpanView, of_column, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_completion, response_of_output
from ragpulse_collector.conventions.values import KINDS, one_of, text


def _sole(members: Any, span: SpanView) -> str | None:
    """Return the variant if the span has only one."""
    return text(next(iter(members.values())), span) if len(members) == 1 else None


def _query(value: Any, span: SpanView) -> Any:
    return (query_of_input if span.attributes.get(names.INPUT_MIME_TYPE) == names.JSON else text)(value, span)


of_column(_query)(plain_texts)


def _response(value: Any, span: SpanView) -> Any:
    mime = span.attributes.get(names.OUTPUT_MIME_TYPE)
    if mime != names.PLAIN_TEXT and value:
        return (response_of_output if mime == names.JSON else response_of_completion)(value, span)
    return value or None if type(value) is str else None


@of_column(_response)
def _plain_responses(column: Sequence[Any], kinds: Kinds) -> Sequence[Any] | None:
    """Return a column of plain texts as it is: for a kind with a response their declared type changes nothing."""
    return plain_texts(column, kinds) if WITHOUT_RESPONSE.isdisjoint(kinds()) else None


def _withheld(value: Any, _: SpanView) -> str | None:
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
