"""Topics and content gaps as HTML, and the forms."""

import csv
import io
import re

import pytest

from .fake_api import FakeApi
from .reading import client, text_of


def test_topics_stand_in_the_order_of_the_answers_lost() -> None:
    """With share and change, quality, unanswered, cost, latency, thumbs and the worst answers; a week by default."""
    api = FakeApi()
    html = client(api).get("/topics").text
    assert ("GET topics", {"from": "-7d"}) in api.calls
    text = text_of(html)
    first, second = (text.index(name) for name in ("account 0", "billing 1"))
    assert first < second < text.index("other")
    for said in ("fails more", "60 %", "+5.0 %", "New: plans", "Grew: plans", "Lost: fax", "$0.0020", "2.10 s", "70 %"):
        assert said in text.replace("\N{NO-BREAK SPACE}", " "), said
    assert '<a href="/topics" data-go="p" aria-current="page">Topics</a>' in html
    assert 'data-later="/topics/gaps?from=-7d"' in html
    row = html[html.index("account 0") : html.index("billing 1")]
    assert len(re.findall(r'href="/traces/[0-9a-f]{32}', row)) == 3


def test_a_topic_is_renamed_in_place() -> None:
    """The form asks the operation and returns; `other` has none."""
    api = FakeApi()
    assert len(re.findall(r'action="/topics/\d+"', client(api).get("/topics").text)) == 5
    answer = client(api).post("/topics/1", data={"name": "Sign in"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
    assert ("PUT topics/1", {"name": "Sign in"}) in api.calls
    assert client(api).post("/topics/fit", data={"again": "1"}).status_code == 303
    assert ("POST topics/fit", {}) in api.calls
    api.quoted = "The name before is still in: rule 'x<y'."
    answer = client(api).post("/topics/1", data={"name": "Sign in"})
    assert (answer.status_code, "still in: rule &#39;x&lt;y&#39;." in answer.text) == (200, True)


@pytest.mark.parametrize(
    "problem",
    ["topics need 500 questions: 116 are missing", "topics need scikit-learn: pip install 'ragpulse[topics]'"],
)
def test_without_topics_the_page_says_why(problem: str) -> None:
    """How many questions are missing, or the line to install."""
    api = FakeApi()
    api.topics_problem = problem
    assert problem.removeprefix("t") in text_of(client(api).get("/topics").text)


def test_before_the_first_fit_the_page_says_when_it_comes() -> None:
    """A new collector with enough questions looks each minute."""
    assert "No topics yet: the first are found within a minute." in text_of(
        client(FakeApi(empty=True)).get("/topics").text
    )


def test_gaps_are_there_to_hand_on() -> None:
    """Sentences, examples, a dataset, text for an issue, CSV; documents that nothing finds, and pairs."""
    html = client().get("/topics/gaps?from=-7d").text
    text = text_of(html)
    assert "62 % unanswered; nearest document kb/sso.md (never used)" in text
    assert "kb/fax.md 31 requests" in text
    assert "kb/a.md and kb/b.md together in 80" in text
    assert html.count('name="trace_id"') == 5
    assert "### Missing content: sign-on, team" in html
    sent = client().get("/topics/gaps.csv?from=-7d")
    rows = list(csv.DictReader(io.StringIO(sent.text)))
    assert sent.headers["content-disposition"] == 'attachment; filename="gaps.csv"'
    assert [(row["kind"], row["terms"], row["nearest document"]) for row in rows] == [
        ("unanswered", "sign-on, team", "kb/sso.md"), ("ungrounded", "sign-on, team", "kb/sso.md"),
    ]  # fmt: skip
    assert "No group of questions" in text_of(client(FakeApi(empty=True)).get("/topics/gaps").text)
