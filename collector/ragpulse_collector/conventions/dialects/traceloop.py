"""OpenLLMetry / Traceloop: `traceloop.*`, its own and the older `gen_ai.*` / `llm.*` spellings."""

from __future__ import annotations

from ragpulse_collector.conventions.documents import (
    documents_in_output,
    documents_of_retrieval,
    result_events,
    search_kind,
)
from ragpulse_collector.conventions.rules import rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_output
from ragpulse_collector.conventions.values import KINDS, first_event, gathered, one_of, text, unquoted

REQUEST_TYPES = {"chat": "llm", "completion": "llm", "embedding": "embedding", "rerank": "reranker"}
_INPUT, _OUTPUT = "traceloop.entity.input", "traceloop.entity.output"
_ASSOCIATION = "traceloop.association.properties."


RULES = rules(
    kind={
        _OUTPUT: search_kind("traceloop.span.kind", "task"),
        "llm.request.type": one_of(REQUEST_TYPES),
        "traceloop.span.kind": one_of(KINDS | {"workflow": "chain", "task": "chain"}),
    },
    query={_INPUT: query_of_input},
    contexts={
        _OUTPUT: (documents_of_retrieval, documents_in_output),
        "event:db.query.result": result_events("db.query.result."),
    },
    response={_OUTPUT: response_of_output},
    ttft_ms={"event:gen_ai.content.completion.chunk": first_event},
    session_id={
        _ASSOCIATION + "session_id": unquoted,
        _ASSOCIATION + "thread_id": unquoted,
    },
    user_id={_ASSOCIATION + "user_id": unquoted},
    index_version={_ASSOCIATION + "index_version": unquoted},
    prompt_name={"traceloop.prompt.key": text},
    prompt_version={"traceloop.prompt.version": unquoted},
    metadata={_ASSOCIATION: gathered},
)
LAST = rules(
    user_id={
        "llm.user": text,
        "gen_ai.user": text,
    },
)
