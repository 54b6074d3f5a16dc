"""OpenInference: Phoenix's vocabulary, which many instrumentations and our own SDK speak beside GenAI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.documents import documents_of_retrieval, flattened
from ragpulse_collector.conventions.rules import WITHOUT_RESPONSE, Kinds, Result, SpanView, of_column, rules
from ragpulse_collector.conventions.texts import or_json, plain, query_in, response_of_completion, response_of_output
from ragpulse_collector.conventions.values import (
    KINDS,
    REPR_BEGINS,
    SEARCHES,
    amount,
    count,
    first_event,
    first_reason,
    json_object,
    member,
    of_event,
    of_kinds,
    one_of,
    parsed,
    small_count,
    strings,
    text,
    texts,
    unquoted,
)

_MESSAGE = re.compile(
    r"([0-9]{1,6})\.message\.(?:content|contents\.([0-9]{1,6})\.message_content\.text)", flags=re.ASCII
)
_JSON_BEGINS = frozenset('{["')
_SPEAKER = "assistant: "
"""LlamaIndex's prefix of a model's answer."""
_is_odd = re.compile("|".join((_SPEAKER, REPR_BEGINS, *shapes.WITHHELD_TEXTS))).match


def plain_query(value: Any, span: SpanView) -> Any:
    """Return a plain text as it is; read JSON, declared or not."""
    if _is_json(value, span.attributes.get(names.INPUT_MIME_TYPE)):
        return or_json(query_in)(value, span)
    return _plain_or_repr(value, span, "query")


def plain_response(value: Any, span: SpanView) -> Any:
    """Return a plain text as it is, and undeclared JSON, too; other rules read declared JSON."""
    mime = span.attributes.get(names.OUTPUT_MIME_TYPE)
    if _is_json(value, mime):
        return None if mime == names.JSON else response_of_completion(value, span)
    if span.kind == "llm" and type(value) is str and value.startswith(_SPEAKER):
        return value.removeprefix(_SPEAKER) or None
    return _plain_or_repr(value, span, "response")


def _plain_or_repr(value: Any, span: SpanView, field: str) -> Any:
    return plain(value, field) if type(value) is str and _is_odd(value) else text(value, span)


@of_column(plain_query, plain_response)
def plain_texts(column: Sequence[Any], kinds: Kinds) -> Sequence[Any] | None:
    """Return a column of plain texts as it is, None if one may be JSON or an object's repr."""
    plain = texts(column, kinds)
    if not plain or not _JSON_BEGINS.isdisjoint(map(itemgetter(0), plain)):
        return None
    return None if any(map(_is_odd, plain)) else plain


def _json_response(value: Any, span: SpanView) -> Any:
    """Read the answer from JSON; another rule reads texts."""
    return response_of_output(value, span) if type(value) is not str or value[:1] in _JSON_BEGINS else None


def _is_json(value: Any, mime: Any) -> bool:
    if type(value) is not str or (mime is not None and mime != names.JSON):
        return False
    return value[:1] in _JSON_BEGINS and parsed(value) is not None


def _texts(members: Any) -> dict[int, list[tuple[str, str]]]:
    """Return the text parts in `N.message.*` names, in order: index of the message → suffix and text of each.

    Some clients send a message's text as a whole and again in parts: then the whole counts.
    """
    texts: dict[int, list[tuple[str, str]]] = {}
    matches = [(match, suffix, value) for suffix, value in members.items() if (match := _MESSAGE.fullmatch(suffix))]
    for match, suffix, value in sorted(matches, key=lambda item: (int(item[0][1]), int(item[0][2] or -1))):
        kind = members.get(suffix.removesuffix("text") + "type", "text") if match[2] else "text"
        rows = texts.setdefault(int(match[1]), [])
        is_repeated = match[2] and rows and rows[0][0].endswith(".content")
        if type(value) is str and value and kind in shapes.TEXT_PARTS and not is_repeated:
            rows.append((suffix, value))
    return {index: rows for index, rows in texts.items() if rows}


def _role(members: Any, index: int) -> str | None:
    return shapes.ROLES.get(str(members.get(f"{index}.message.role")).lower())


def _user_message(members: Any, _: SpanView) -> Result | None:
    texts = [rows for index, rows in _texts(members).items() if _role(members, index) == shapes.USER]
    return _joined("query", texts[-1]) if texts else None


def _answer_message(members: Any, span: SpanView) -> Result | None:
    """Return the first choice of a model call, the last message of anything else."""
    if span.kind in WITHOUT_RESPONSE:
        return None
    texts = [rows for index, rows in _texts(members).items() if _role(members, index) in (None, shapes.ASSISTANT)]
    if texts:
        return _joined("response", texts[0 if span.kind == "llm" else -1])
    calls = any(".message.tool_calls." in suffix for suffix in members)
    return Result(None, reason=shapes.TOOL_CALLS) if calls else None


def _joined(field: str, rows: list[tuple[str, str]]) -> Result:
    """Return the parts as one text; only a text that is whole in one attribute is stored once."""
    if len(rows) == 1:
        if rows[0][1] in shapes.WITHHELD_TEXTS:
            return Result(None, reason=shapes.WITHHELD)
        return Result(rows[0][1], {rows[0][0]: {"$lifted": field}})
    return Result("".join(text for _, text in rows))


def _cost_in_parts(value: Any, span: SpanView) -> float | None:
    parts = [amount(span.attributes.get(f"llm.cost.{part}"), span) for part in ("prompt", "completion")]
    return None if None in parts else sum(filter(None, parts))


RULES = rules(
    kind={names.OPENINFERENCE_KIND: one_of(KINDS | {"prompt": "other", "decision": "other"})},
    query={
        names.RERANKER_QUERY: text,
        "llm.input_messages.N.": _user_message,
        names.INPUT_VALUE: plain_query,
    },
    contexts={
        "reranker.output_documents.N.": flattened,
        "retrieval.documents.N.": flattened,
        "output.documents.N.": of_kinds(SEARCHES, flattened),  # of another span they are its output
    },
    response={
        names.OUTPUT_VALUE: plain_response,
        "llm.output_messages.N.": _answer_message,
    },
    model={
        "llm.request.model_name": text,
        "llm.response.model_name": text,
        "llm.model_name": text,
        names.EMBEDDING_MODEL: text,
        names.RERANKER_MODEL: text,
        "decision.request.model_name": text,
        "decision.response.model_name": text,
        "decision.model_name": text,
    },
    provider={
        "llm.provider": text,
        "llm.system": text,
        "decision.provider": text,
        "decision.system": text,
    },
    input_tokens={"decision.token_count.input": count},
    output_tokens={"decision.token_count.output": count},
    cost_usd={
        names.COST_TOTAL: amount,
        "llm.cost.prompt": _cost_in_parts,
    },
    finish_reason={"llm.finish_reason": first_reason},
    agent={"agent.name": text},
    top_k={"reranker.top_k": small_count},
    ttft_ms={"event:First Token Stream Event": first_event},
    session_id={names.SESSION_ID: unquoted},
    user_id={names.USER_ID: unquoted},
    prompt_name={"prompt.id": text},
    prompt_version={"llm.prompt_template.version": unquoted},
    tags={names.TAGS: strings},
    metadata={names.METADATA: json_object},
) + rules(response={names.OUTPUT_VALUE: _json_response})
"""The JSON of an output is read after the messages."""
LAST = rules(
    contexts={names.OUTPUT_VALUE: documents_of_retrieval},
    session_id={names.METADATA: member("session_id", unquoted)},
    index_version={names.METADATA: member("index_version", unquoted)},
    error_type={f"event:{names.EXCEPTION_EVENT}": of_event(-1, names.EXCEPTION_TYPE, text)},
    status_message={f"event:{names.EXCEPTION_EVENT}": of_event(-1, names.EXCEPTION_MESSAGE, text)},
)
