"""One trace as one file: self-contained, escaped, secrets masked."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ragpulse._record.credentials import redact_keys
from ragpulse_collector.operations.trace import TraceParts
from ragpulse_dashboards import standalone
from ragpulse_dashboards.mount import redacted

from .conftest import Browser, Visit
from .fake_parts import context, score, span, trace

PARTS = TraceParts(
    trace=trace(
        trace_id="1" * 32, latency_ms=12.0, query="<script>alert(1)</script>", service="helpdesk",
        response="Write to jane@example.org with key sk-abcdefghijklmnopqrstuvwx.",
    ),
    spans=[span(trace_id="1" * 32, span_id="2" * 16, name="answer", kind="rag", latency_ms=12.0)],
    contexts=[context("Card 4111 1111 1111 1111 was charged.", rank=1, id="faq", score=0.5)],
    scores=[score(evaluator="refusal", version="abc", status="ok", normalized=1.0, explanation="fine")],
)  # fmt: skip


def test_the_page_needs_nothing_else_and_escapes_everything() -> None:
    """No script, no address to load, and hostile text stays text."""
    page = standalone(PARTS)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(?:src|href)=", page)
    assert "--accent: #3d4fb5" in page, "the colours of the pages"


def test_secrets_are_masked_and_ids_stay() -> None:
    """Keys, addresses and card numbers go; the trace id is kept whole."""
    page = standalone(PARTS)
    for secret in ("jane@example.org", "sk-abcdefghijklmnopqrstuvwx", "4111 1111 1111 1111"):
        assert secret not in page
    assert "1" * 32 in page


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnopqrstuvwx", "AKIAABCDEFGHIJKLMNOP", "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "xoxb-1234567890-abcdefghij", "hf_abcdefghijklmnopqrstuvwxyz012345", "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "glpat-abcdefghijklmnop1234", "ya29.a0AfB_byCdefghijklmnop-qrstuv", "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP0", "rp_" + "aB3_" * 10 + "xyz",
    ],
)  # fmt: skip
def test_every_key_that_the_sdk_knows_is_masked(secret: str) -> None:
    """One list on both sides: spans of other instrumentations come with their keys."""
    assert secret not in redact_keys(f"the key {secret} is here")
    assert redacted({"a": f"the key {secret} is here"}) == {"a": "the key [redacted] is here"}


def test_redaction_leaves_ordinary_text_alone() -> None:
    """Figures, dates and prices are no secrets."""
    text = "330 metres in 1889, 12.50 EUR, call 112"
    assert redacted({"a": [text]}) == {"a": [text]}


def test_the_page_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    """From a file too the page is within its window and clean for axe-core."""
    long = span(span_id="2" * 16, name="application.answering.Service.answer_with_citations_and_evidence")
    (tmp_path / "trace.html").write_text(standalone(replace(PARTS, spans=[long])))

    def steps(visit: Visit) -> None:
        visit.page.goto(f"{visit.base}/trace.html")
        assert visit.overflow() <= 0
        assert visit.axe() == []

    browser.visit(tmp_path.as_uri(), steps, theme="dark", width=390)
