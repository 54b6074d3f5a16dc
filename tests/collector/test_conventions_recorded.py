"""Bodies recorded from the peers' own SDKs, each asking a loopback model about refunds, become canonical records.

Published in November 2026. `make clients` records them (`tests/clients/run.py`), but for pydantic-ai with logfire;
tracebacks and what names the machine are taken out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spans import Span, spans_of

from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.records import RawBody
from ragpulse_collector.store.ingest.prices import PricedCall, Prices

RECORDED = Path(__file__).parent / "fixtures" / "recorded"
PEERS = sorted(path.stem for path in RECORDED.glob("*.json"))
QUESTION = "How long does a refund take?"
ANSWER = "Five working days."
DOCUMENT = "Refunds take five working days."


def _spans(peer: str) -> list[Span]:
    body = RawBody(signal="traces", content_type="application/json", body=(RECORDED / f"{peer}.json").read_bytes())
    batch = decode(body)
    assert not batch.rejected
    return spans_of(batch)


def _kind(peer: str, kind: str) -> Span:
    return next(span for span in _spans(peer) if span.kind == kind and span.query)


@pytest.mark.parametrize("peer", ["langfuse", "litellm", "mlflow", "openlit", "pydantic_ai", "traceloop"])
def test_the_model_call_has_question_answer_and_usage(peer: str) -> None:
    """What every dialect says of one chat call: text in, text out, model and tokens."""
    call = _kind(peer, "llm")
    assert call.query is not None
    assert call.query.startswith(QUESTION)
    assert call.response == ANSWER
    assert (call.model or "").startswith("gpt-5-mini")
    assert (call.input_tokens, call.output_tokens) == (120, 5)


def test_openlits_decorated_function_is_a_chain() -> None:
    """It has an answer and arguments, but no model: the call within it is the only model call."""
    answer = next(span for span in _spans("openlit") if span.name == "answer" and span.status != "error")
    assert (answer.kind, answer.query, answer.response) == ("chain", QUESTION, ANSWER)
    assert [span.kind for span in _spans("openlit")].count("llm") == 2


def test_a_client_without_prices_does_not_make_calls_free() -> None:
    """OpenLIT had no way to its price list and said 0 for 125 tokens."""
    call = _kind("openlit", "llm")
    assert call.cost_usd == 0
    cost = Prices().cost(PricedCall(**{name: getattr(call, name) for name in PricedCall._fields}))
    assert cost.cost_usd is not None
    assert cost.cost_usd > 0
    assert (cost.cost_source or "").startswith("genai-prices ")


@pytest.mark.parametrize("peer", ["langfuse", "mlflow", "openinference_langchain"])
def test_the_retriever_has_its_contexts(peer: str) -> None:
    """Documents arrive as typed contexts, whatever shape the SDK gave them."""
    retriever = _kind(peer, "retriever")
    assert retriever.query is not None
    assert retriever.query.startswith(QUESTION)
    assert [context.text for context in retriever.contexts or ()][:1] == [DOCUMENT]


@pytest.mark.parametrize("peer", ["langfuse", "mlflow", "openinference_langchain", "pydantic_ai", "traceloop"])
def test_the_root_has_question_and_answer(peer: str) -> None:
    """The outermost span is what online evaluation judges."""
    spans = _spans(peer)
    ids = {span.span_id for span in spans}
    root = next(span for span in spans if span.parent_span_id not in ids and span.status != "error")
    assert root.query is not None
    assert root.query.startswith(QUESTION)
    assert root.response == ANSWER


@pytest.mark.parametrize("peer", PEERS)
def test_what_was_sent_can_be_rebuilt(peer: str) -> None:
    """Texts are lifted out of the raw attributes; together they give back every text that came in."""
    sent = json.loads((RECORDED / f"{peer}.json").read_text(encoding="utf-8"))
    texts = {
        span["spanId"]: {
            pair["key"]: pair["value"]["stringValue"]
            for pair in span.get("attributes", ())
            if "stringValue" in pair["value"]
        }
        for resource in sent["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    }
    for span in _spans(peer):
        kept = restore_attributes(span.attributes, span.query, span.response, span.contexts)
        assert texts[span.span_id].items() <= kept.items()
