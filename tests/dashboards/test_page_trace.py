"""The page of one trace as HTML."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from .fake_api import FakeApi
from .reading import client, text_of


def test_what_failed_comes_first_on_a_trace() -> None:
    """In the header and among the verdicts: failed, then passed, then without a bound; by name; skipped ones last.

    A thumb down is a failure, an earlier verdict of the same evaluator is not in the header.
    """

    class Judged(FakeApi):
        def get_traces_one(self, name: str, params: Mapping[str, Any], *rest: str) -> dict[str, Any]:
            answer = super().get_traces_one(name, params, *rest)
            if "scores" in answer:
                base = {**answer["scores"][0], "parts": None, "normalized": 0.0}
                found = [
                    ("bleu", "ok", None),
                    ("citations", "skipped", None),
                    ("words", "ok", True),
                    ("zeal", "ok", False),
                    ("thumbs", "ok", None),
                    ("tone", "ok", False),
                ]
                answer["scores"] = [
                    {**base, "evaluator": one, "status": status, "passing": passing} for one, status, passing in found
                ]
                older = {**base, "evaluator": "tone", "passing": True, "created_at": "2026-11-20T00:00:00Z"}
                answer["scores"].append(older)
            return answer

    api = Judged()
    html = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    chips = re.findall(r'<a class="chip[^"]*" href="#verdict-(\w+)"', html)
    verdicts = re.findall(r'verdict-card".*?<h3[^>]*>(\w+)</h3>', html, re.DOTALL)
    assert chips == ["thumbs", "tone", "zeal", "words", "bleu"]
    assert all(f'id="verdict-{name}"' in html for name in chips)
    assert verdicts == ["thumbs", "tone", "zeal", "tone", "words", "bleu", "citations"]


def test_an_error_is_named_with_its_span() -> None:
    """Exception, message, stack trace and the failing span stand on top of the trace."""
    api = FakeApi()
    row = next(row for row in api.rows if row["error"])
    page = client(api).get(f"/traces/{row['trace_id']}").text
    assert "openai.RateLimitError in generate : too many requests: try again in 20 s" in text_of(page)
    assert "Traceback (most recent call last):\n" in page


@pytest.mark.parametrize(("asked", "told"), [("groundedness", "Nothing to do"), ("refusal,groundedness", "Queued")])
def test_evaluating_again_says_whether_anything_is_queued(asked: str, told: str) -> None:
    """What has a score keeps it: the page must not promise another one."""
    api = FakeApi()
    path = f"/traces/{api.rows[0]['trace_id']}"
    answer = client(api).post(f"{path}/evaluate", data={"evaluators": asked})
    page = text_of(client(api).get(answer.headers["location"]).text)
    assert told in page


def test_contexts_before_the_reranker_stand_apart() -> None:
    """Three were answered from, six were found; the trace is linked as a file that needs no collector."""
    api = FakeApi()
    path = f"/traces/{api.rows[2]['trace_id']}"
    page = client(api).get(path).text
    assert "before rerank (6)" in page
    assert "Contexts 3 " in text_of(page)
    assert f'href="{path}/html" download' in page
    answer = client(api).get(f"{path}/html")
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''trace-")


def test_a_trace_shows_question_contexts_answer_and_verdicts() -> None:
    """Everything about one answer is on its page, the unsupported sentence by name."""
    api = FakeApi()
    page = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    assert 'href="/users/user-' in page
    assert f'href="/traces/{api.rows[2]["trace_id"]}/html" download' in page
    text = text_of(page)
    for words in (
        "How long are backups kept?",
        "operations/backups.md",
        "2 of 3 sentences supported",
        "faithfulness",
        "sampled at 5.0\xa0%".replace("\xa0", " "),
        "Is every statement of the answer supported",
    ):
        assert words in text


def test_a_span_is_shown_with_its_attributes() -> None:
    """The fragment behind a waterfall row lists the attributes verbatim."""
    api = FakeApi()
    row = api.rows[0]
    span = api.get_traces_one(row["trace_id"], {})["spans"][4]["span_id"]
    text = text_of(client(api).get(f"/traces/{row['trace_id']}/spans/{span}").text)
    assert "gen_ai.request.model" in text


@pytest.mark.parametrize("path", ["/traces/xyz", "/traces/" + "0" * 32, "/traces/..%2f..%2fetc"])
def test_unknown_traces_are_not_found(path: str) -> None:
    """A wrong id is a 404 page in words."""
    response = client().get(path)
    assert response.status_code == 404


class Explored(FakeApi):
    """A day whose first trace has a score of an exploratory replay."""

    def _scores(self, row: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
        """The scores of a trace."""
        found = super()._scores(row, index)
        more = {"evaluator": "is_json", "passing": False, "normalized": 0.0, "run_id": "r1", "exploratory": True}
        return [*found, {**found[0], **more}]


def test_an_exploratory_score_is_no_verdict() -> None:
    """No chip and no card; one line names it with a link to its replay."""
    api = Explored()
    html = client(api).get(f"/traces/{api.rows[0]['trace_id']}").text
    assert "verdict-is_json" not in html
    assert '<a href="/replays/r1">' in html
    assert "(of exploratory replays)" in text_of(html)
