"""What users test their own applications with."""

import re
from typing import Any

import pytest

import ragpulse
from ragpulse.testing import RecordedSpans, capture, ragpulse_spans

__all__ = ["ragpulse_spans"]


@ragpulse.retriever
def search(query: str) -> list[str]:
    """A search."""
    return ["Paris is in France."]


@ragpulse.rag
def answer(question: str) -> str:
    """The application."""
    return search(question)[0]


def test_the_fixture_holds_what_was_recorded(ragpulse_spans: RecordedSpans) -> None:
    """Query, response, contexts and nesting are at hand."""
    answer("Where is Paris?")
    ragpulse_spans.assert_nested("search", "answer")
    assert ragpulse_spans.one(kind="rag").response == "Paris is in France."
    assert ragpulse_spans.one("search").contexts == [{"score": None, "content": "Paris is in France."}]
    assert ragpulse_spans.one("search").query == "Where is Paris?"


def test_identities_and_times_are_the_same_in_every_run(ragpulse_spans: RecordedSpans) -> None:
    """Ids count from 1, the clock ticks in milliseconds."""
    answer("q")
    root = ragpulse_spans.one("answer")
    assert (root.trace_id, root.span_id, root.parent_span_id) == (f"{1:032x}", f"{2:016x}", None)
    assert root.end_ns - root.start_ns == 3_000_000
    list(ragpulse.llm(name="stream")(lambda q: iter(["yes"]))("q"))
    assert ragpulse_spans.one("stream").attributes["gen_ai.response.time_to_first_chunk"] == 0.001


def test_a_missing_or_doubled_span_is_an_assertion_error() -> None:
    """`one` says what there is."""
    with capture() as spans:
        answer("q")
        with pytest.raises(AssertionError, match=r"among: search \(retriever\), answer \(rag\)"):
            spans.one("missing")
        with pytest.raises(AssertionError, match="found 2"):
            spans.one()
        with pytest.raises(AssertionError, match="not directly below"):
            spans.assert_nested("answer", "search")
        spans.clear()
        assert len(spans) == 0


def test_capturing_ends_with_the_block() -> None:
    """Afterwards everything is as before."""
    with capture() as spans:
        answer("q")
    answer("q")
    assert len(spans) == 2


def test_errors_are_told_by_type(ragpulse_spans: RecordedSpans) -> None:
    """A failed call's span names the exception."""

    @ragpulse.tool
    def failing() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        failing()
    assert ragpulse_spans.one("failing").error == "LookupError"


def test_figures_of_a_model_call_are_at_hand(ragpulse_spans: RecordedSpans) -> None:
    """Usage, model and cost of a call; the text of a context under both of its names."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}, "cost": 0.5}
    ragpulse.llm(name="ask")(lambda question: {"content": "yes", "model": "m", "usage": usage})("q")
    span = ragpulse_spans.one("ask")
    assert span.usage == ragpulse.Usage(input_tokens=3, output_tokens=2, cached_tokens=1)
    assert (span.model, span.cost_usd) == ("m", 0.5)
    answer("Where is Paris?")
    found = ragpulse_spans.one("search")
    assert (found.usage, found.model, found.cost_usd) == (None, None, None)
    (context,) = found.contexts
    assert context.text == context["text"] == context["content"] == "Paris is in France."


def _own_rule(text: str) -> str:
    return text.replace("ACME-7", "[customer]")


RULES: dict[str, tuple[Any, str, str]] = {
    "a function": (_own_rule, "order of ACME-7", "order of [customer]"),
    "a pattern": (re.compile(r"ACME-\d"), "order of ACME-7", "order of [redacted]"),
    "a list": (["key", _own_rule], "sk-abcdefghijklmnopjane of ACME-7", "[redacted:key] of [customer]"),
    "all": ("all", "write to jane@doe.example", "write to [redacted:email]"),
    "none": ("off", "password=hunter2", "password=hunter2"),
}


@pytest.mark.parametrize("shape", RULES)
def test_what_is_captured_is_what_would_be_sent(shape: str) -> None:
    """The rules of `configure`: in queries, responses, contexts, metadata, exceptions, and their messages."""
    rule, secret, shown = RULES[shape]
    ragpulse.configure(endpoint="http://127.0.0.1:9", redact=rule)
    try:
        with capture() as spans:
            with ragpulse.attributes(metadata={"note": secret}):
                ragpulse.rag(name="echo")(lambda question: question)(secret)
            ragpulse.retriever(name="search")(lambda query: [{"text": secret, "note": secret}])("q")
            with pytest.raises(ValueError, match=re.escape(secret)), ragpulse.tool("failing"):
                raise ValueError(secret)
    finally:
        ragpulse.shutdown(timeout=0)
    echo, search, failing = spans.one("echo"), spans.one("search"), spans.one("failing")
    assert (echo.query, echo.response, search.contexts[0].text) == (shown, shown, shown)
    assert failing.error_message == f"ValueError: {shown}"
    assert failing.events[0][1]["exception.message"] == shown
    everything = "".join(map(str, spans))
    assert (secret in everything) is (shown == secret)


def test_what_is_withheld_is_not_captured() -> None:
    """As `configure` was called."""
    ragpulse.configure(endpoint="http://127.0.0.1:9", capture_content=False, max_text_bytes=10)
    try:
        with capture() as spans:
            ragpulse.rag(name="echo")(lambda question: question)("a question")
    finally:
        ragpulse.shutdown(timeout=0)
    assert (spans.one("echo").query, spans.one("echo").response) == (None, None)
    with capture() as spans:
        ragpulse.rag(name="echo")(lambda question: question)("as sk-abcdefghijklmnopjane")
    assert spans.one("echo").query == "as [redacted:key]"
