"""The examples behind a point, and the worst answers, as HTML."""

from html import unescape

from .fake_api import FakeApi
from .reading import client, text_of


def test_the_worst_answers_name_the_sentence_and_the_document() -> None:
    """Each with what is not supported and what is closest to it; above them what the bad ones share."""
    text = text_of(client().get("/worst?evaluator=groundedness&since=2026-11-21T04:00:00Z").text)
    assert "80 of 83 bad answers (50 %) retrieved operations/backups.md ; of the others 5.0 %" in text
    assert "✕ " in text
    assert text.count("groundedness 0.") >= 5


def test_a_question_is_once_among_the_worst() -> None:
    """Five rows were one question that many had asked."""
    api = FakeApi()
    for row in api.rows:
        row["query"] = "What is the default retention?"
    text = text_of(client(api).get("/worst?evaluator=groundedness&since=2026-11-21T04:00:00Z").text)
    assert text.count("What is the default retention?") == 1


def test_examples_lead_to_every_trace_of_their_bucket() -> None:
    """Below the worst, median and best there is the list they were taken from, in the order that matters."""
    html = unescape(client().get("/exemplars?metric=quality:groundedness&t=2026-11-21T04:00:00Z&step=900").text)
    bucket = "from=2026-11-21T04%3A00%3A00Z&to=2026-11-21T04%3A15%3A00Z"
    assert f'href="/traces?{bucket}&evaluator=groundedness&sort=worst"' in html
    assert "All traces" not in client().get("/exemplars?metric=requests&t=never&step=x").text
