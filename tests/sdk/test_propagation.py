"""What reaches the spans below: request facts, variants, context across services."""

import json
from collections import Counter

import httpx
import pytest
from opentelemetry import propagate
from opentelemetry.context import attach, detach
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

import ragpulse
from ragpulse.testing import RecordedSpans, ragpulse_spans

from .conftest import Collector

__all__ = ["ragpulse_spans"]


@ragpulse.tool
def step(n: int = 0) -> None:
    """A step."""


def test_attributes_reach_all_spans_below_and_none_after(ragpulse_spans: RecordedSpans) -> None:
    """Session, user, tags, metadata, prompt and variant; nested blocks add up, the inner one wins."""
    outer_block = ragpulse.attributes(session_id="s", user_id="u", tags=["a"], metadata={"x": 1}, prompt_version="v6")
    with outer_block, ragpulse.attributes(tags=["b"], metadata={"y": 2}, prompt_version="v7", variant="blue"):
        step(1)
    step(2)
    inner, outer = list(ragpulse_spans)
    recorded = inner.attributes
    assert (recorded["session.id"], recorded["gen_ai.conversation.id"], recorded["user.id"]) == ("s", "s", "u")
    assert (recorded["tag.tags"], json.loads(recorded["metadata"])) == (("a", "b"), {"x": 1, "y": 2})
    assert (recorded["gen_ai.prompt.version"], recorded["ragpulse.variant"]) == ("v7", "blue")
    assert "session.id" not in outer.attributes


def test_attributes_last_until_a_stream_is_read_although_the_block_has_ended(ragpulse_spans: RecordedSpans) -> None:
    """A streaming endpoint returns its generator from within the block; the session is the call's."""
    stream = ragpulse.llm(name="stream")(_words)
    with ragpulse.attributes(session_id="s"), ragpulse.rag("turn"):
        words = stream("q")
    assert list(words) == ["a", "b"]
    assert ragpulse_spans.one("stream").attributes["session.id"] == "s"
    ragpulse_spans.assert_nested("stream", "turn")


def _words(question: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    yield from ("a", "b")


def test_a_decorators_prompt_reaches_the_spans_below(ragpulse_spans: RecordedSpans) -> None:
    """The model's span says which prompt it ran under."""
    ragpulse.rag(name="root", prompt_name="qa", prompt_version="v7")(lambda q: step())("q")
    assert ragpulse_spans.one("step").attributes["gen_ai.prompt.name"] == "qa"


def test_headers_carry_trace_session_and_prompt_to_another_service(ragpulse_spans: RecordedSpans) -> None:
    """W3C traceparent and baggage out and in; tags and metadata stay at home."""
    headers: dict[str, str] = {}
    facts = ragpulse.attributes(session_id="s 1", user_id="ü", prompt_name="qa", tags=["private"], metadata={"p": 1})
    with facts, ragpulse.rag("caller"):
        ragpulse.inject(headers)
    assert "private" not in json.dumps(headers)
    with ragpulse.extract({key.title(): value for key, value in headers.items()}):
        step()
    ragpulse_spans.assert_nested("step", "caller")
    recorded = ragpulse_spans.one("step").attributes
    assert (recorded["session.id"], recorded["user.id"], recorded["gen_ai.prompt.name"]) == ("s 1", "ü", "qa")


def test_what_a_request_brings_reaches_all_spans_below(ragpulse_spans: RecordedSpans) -> None:
    """Not only the first span of this service."""
    with ragpulse.extract({"baggage": "session.id=s1"}), ragpulse.rag("root"):
        step()
    assert [span.attributes.get("session.id") for span in ragpulse_spans] == ["s1", "s1"]


@pytest.mark.parametrize(
    ("listed", "host", "travels"),
    [
        ((), "api.example.org", False),
        (["other.example.org"], "api.example.org", False),
        (["API.example.org:80"], "api.example.org", True),
        (["*.example.org"], "api.example.org", True),
        (["*.example.org"], "example.org", False),
    ],
)
def test_identities_reach_listed_hosts_only(
    collector: Collector, listed: tuple[str, ...], host: str, travels: bool
) -> None:
    """With the genuine instrumentor of httpx; also those that came with a request to this service."""
    ragpulse.configure(endpoint=collector.url, propagate_to=listed, capture_content=False)
    requests: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.headers)
        return httpx.Response(204)

    incoming: dict[str, str] = {}
    with ragpulse.attributes(user_id="jane", session_id="s1"):
        ragpulse.inject(incoming)
    with httpx.Client(transport=httpx.MockTransport(answer), base_url=f"http://{host}") as client:
        HTTPXClientInstrumentor.instrument_client(client, tracer_provider=ragpulse.tracer_provider())
        with ragpulse.attributes(user_id="jane"), ragpulse.rag("root"):
            client.get("/")
        with ragpulse.extract(incoming):
            client.get("/")
        received = attach(propagate.extract(incoming))  # as an instrumented server does it
        with ragpulse.rag("root"):
            client.get("/")
        detach(received)
    ragpulse.shutdown(timeout=60)
    assert ["jane" in str(headers) for headers in requests] == [travels] * 3
    assert all("traceparent" in headers for headers in requests)
    assert [span.attributes["user.id"] for span in collector.spans] == ["jane"] * 5


def test_broken_headers_are_ignored(ragpulse_spans: RecordedSpans) -> None:
    """A malformed traceparent begins a new trace."""
    with ragpulse.extract({"traceparent": "nonsense", "baggage": "=;,%%%"}):
        step()
    assert ragpulse_spans.one("step").parent_span_id is None


def test_a_variant_is_the_same_for_the_same_unit_and_follows_the_weights() -> None:
    """Deterministic, independent between experiments, in proportion."""

    def assign(experiment: str) -> list[str]:
        with ragpulse.attributes():  # ends what the assignments leave in the context
            return [ragpulse.variant(experiment, by=n, options=("v6", "v7"), weights=(3, 1)) for n in range(2000)]

    first, again, other = assign("prompt"), assign("prompt"), assign("model")
    assert first == again != other
    assert 1400 < Counter(first)["v6"] < 1600


def test_a_variant_is_recorded_here_and_below_but_not_beside(ragpulse_spans: RecordedSpans) -> None:
    """On the current span and those below; the next request starts clean."""

    @ragpulse.rag
    def answer(user: str) -> str:
        chosen = ragpulse.variant("prompt", by=user, options=("v6", "v7"))
        step()
        return chosen

    chosen = answer("u1")
    step()
    below, root, beside = ragpulse_spans
    for span in (root, below):
        assert (span.attributes["ragpulse.variant"], span.attributes["ragpulse.variant.prompt"]) == (chosen, chosen)
    assert "ragpulse.variant" not in beside.attributes


@pytest.mark.parametrize(
    ("options", "weights"), [((), None), (("a",), (0,)), (("a", "b"), (1,)), (("a", "b"), (2, -1))]
)
def test_impossible_variants_are_refused(options: tuple[str, ...], weights: tuple[float, ...] | None) -> None:
    """No options, no positive weight, or another number of them."""
    with pytest.raises(ValueError, match="variant needs"):
        ragpulse.variant("x", by="u", options=options, weights=weights)


def test_feedback_with_a_malformed_id_does_not_reach_the_application(collector: Collector) -> None:
    """Logged, not raised, outside strict mode."""
    ragpulse.configure(endpoint=collector.url, strict=False)
    ragpulse.feedback("not hex", score=1)
    ragpulse.shutdown(timeout=60)
    assert not collector.logs
