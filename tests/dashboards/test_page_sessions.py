"""Sessions and users as HTML."""

import re
from collections.abc import Mapping
from typing import Any

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_thumb_of_a_person_is_marked_as_a_check_is() -> None:
    """Down is red, in the conversation and on the trace; it is not told twice. Examples name scores as pages do."""

    class Disliked(FakeApi):
        def get_sessions_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_sessions_one(name, params)
            thumb = {"thumbs": {"normalized": 0.0, "status": "ok", "passing": None, "label": None, "score": None}}
            turns = [{**one, "feedback": -1.0, "scores": one["scores"] | thumb} for one in answer["turns"]]
            return answer | {"turns": turns}

    html = client(Disliked()).get("/sessions/session-3").text
    assert html.count("✕</span> thumbs down") == html.count('class="turn failing"') > 0
    assert "feedback" not in text_of(html)

    class Liked(FakeApi):
        def get_exemplars(self, params: Mapping[str, Any]) -> dict[str, Any]:
            thumb = {"thumbs": {"normalized": 1.0, "status": "ok", "passing": None, "label": None, "score": None}}
            found = super().get_exemplars(params)
            return {part: [{**one, "scores": one["scores"] | thumb} for one in rows] for part, rows in found.items()}

    examples = text_of(client(Liked()).get("/exemplars?metric=latency_p95&t=2026-11-21T04:00:00Z&step=900").text)
    assert "thumbs up" in examples
    assert "thumbs down" not in examples
    assert "groundedness 0." in examples
    assert "context_utilization" not in examples


def test_a_session_is_a_conversation() -> None:
    """The first turn first, with answers, scores and cost; from a trace one click, as a user's over all sessions."""
    api = FakeApi()
    turns = [row for row in api.rows if row["session_id"] == "session-3"][::-1]
    page = client(api).get("/sessions/session-3").text
    assert re.findall(r'href="/traces/([0-9a-f]{32})', page) == [row["trace_id"] for row in turns]
    text = text_of(page)
    assert turns[1]["response"].split(". ")[0] in text
    assert "groundedness" in text
    assert "$" in text
    listed = client(api).get("/sessions").text
    assert 'href="/sessions/session-3"' in listed
    assert "✕ 0.31 failing" in text_of(listed)
    assert 'href="/sessions/session-3"' in client(api).get(f"/traces/{turns[0]['trace_id']}").text
    asked = re.findall(r'<p class="asked"[^>]*><a href="/traces/([0-9a-f]{32})', client(api).get("/users/user-2").text)
    assert asked == [row["trace_id"] for row in api.rows if row["user_id"] == "user-2"][::-1]
    bad = re.findall(
        r'href="/traces\?user_id=user-2&amp;from=-365d&amp;(\w+)=true">(\d+) ([^<]+)<',
        client(api).get("/users/user-2").text,
    )
    assert [(name, words) for name, _, words in bad] == [
        ("failing", "fail groundedness"),
        ("error", "ended in an error"),
    ]
    assert client(api).get("/users/nobody").status_code == 404


def test_a_turn_without_a_model_call_costs_nothing() -> None:
    """The cost of a user is known then, as that of the session is; another unknown cost makes the sum unknown."""

    class Uncalled(FakeApi):
        reason = "no call with usage"

        def get_traces(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_traces(params)
            rows = [row | {"cost_usd": 0.01} for row in answer["traces"]]
            rows[0] |= {"cost_usd": None, "cost_unknown_reason": self.reason}
            return answer | {"traces": rows, "total": len(rows)}

    assert re.search(r"Cost \$0\.\d+ ", text_of(client(Uncalled()).get("/users/user-1").text))
    Uncalled.reason = "no price"
    assert "Cost unknown" in text_of(client(Uncalled()).get("/users/user-1").text)


def test_a_judged_conversation_leads_its_page() -> None:
    """Its newest scores as a whole stand above the turns, in the order of what a person asks."""

    class Judged(FakeApi):
        def get_sessions_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_sessions_one(name, params)
            *_, last = answer["turns"]
            own = {"status": "ok", "label": None, "score": None}
            last["scores"] |= {"abandoned": own | {"normalized": 0.0, "passing": False}}
            last["scores"] |= {"goal_completion": own | {"normalized": 0.75, "passing": None}}
            return answer

    html = client(Judged()).get("/sessions/session-3").text
    whole = html.split('aria-label="The conversation as a whole"')[1].split("</p>")[0]
    assert text_of(whole).index("goal completion") < text_of(whole).index("abandoned")
    assert 'class="state bad"' in whole
