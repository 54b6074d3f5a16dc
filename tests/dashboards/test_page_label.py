"""The queue of answers to label as HTML, and its form."""

import re
from collections.abc import Mapping
from typing import Any

from .fake_api import FakeApi
from .reading import client, text_of


def test_labels_are_suggested_until_none_is_left() -> None:
    """When the first suggestions all have labels, the page asks for more before it says that there are none."""

    class Labelled(FakeApi):
        def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            return super().get_labels_one(name, params) if params.get("limit") == 200 else {"traces": []}

    assert "Whole trace" in text_of(client(Labelled()).get("/label").text)


def test_the_pages_agree_how_many_labels_are_needed() -> None:
    """The queue with nothing left, and the form below a trace."""

    class Labelled(FakeApi):
        def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            return {"traces": []}

    api = Labelled()
    for path in ("/label", f"/traces/{api.rows[2]['trace_id']}"):
        assert "rom 30 labels on, an evaluator's estimate is corrected" in text_of(client(api).get(path).text)


def test_labels_are_sent_and_lead_back() -> None:
    """A verdict by form reaches the API as a label and returns to the trace."""
    api = FakeApi()
    trace_id = api.rows[0]["trace_id"]
    response = client(api).post(
        f"/traces/{trace_id}/label", data={"verdict": "bad", "evaluator": "groundedness", "comment": "no"}
    )
    assert response.status_code == 303
    assert api.calls[-1] == (
        "POST labels",
        {"trace_id": trace_id, "evaluator": "groundedness", "passing": False, "score": 0.0, "comment": "no"},
    )


def test_the_queue_says_what_was_saved() -> None:
    """After a verdict the next answer comes, with a link back to the one just labelled."""
    api = FakeApi()
    trace_id = api.rows[0]["trace_id"]
    form = {"verdict": "bad", "evaluator": "groundedness", "return_to": "label"}
    following = client(api).post(f"/traces/{trace_id}/label", data=form).headers["location"]
    html = client(api).get(following).text
    assert "Saved as bad: that answer" in text_of(html)
    assert f'href="/traces/{trace_id}"' in html
    assert "Saved" not in text_of(client(api).get("/label?saved=<b>&of=x").text)


def test_skipping_the_last_suggestion_begins_again() -> None:
    """Six are suggested: the seventh is the first."""
    assert "6 of 6 suggested" in text_of(client().get("/label?skip=5").text)
    first, seventh = (text_of(client().get(f"/label?skip={skip}").text) for skip in (0, 6))
    assert first == seventh


def test_the_queue_counts_labels_not_suggestions() -> None:
    """After each label the rest is suggested anew: "1 of 20" never moved."""
    assert "Label 104 labels" in text_of(client().get("/label?evaluator=groundedness").text)
    assert "Label 0 of 30 labels until correction" in text_of(client().get("/label?evaluator=refusal").text)


def test_the_estimate_is_shown_before_and_after_enough_labels() -> None:
    """As judged and corrected, of an evaluator with thirty labels; below them there is no correction to show."""
    assert re.search(
        r"Groundedness of the last 7 days: .* as judged, .* corrected by 104 labels", text_of(labelled(104))
    )
    assert "as judged" not in text_of(labelled(29))
    assert "29 of 30 labels until correction" in text_of(labelled(29))


def labelled(n: int) -> str:
    """The queue of the evaluator that leads with so many labels."""

    class Labelled(FakeApi):
        def get_evaluators(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_evaluators(params)
            for one in answer["evaluators"]:
                if one["calibration"]:
                    one["calibration"]["n"] = n
            return answer

    return client(Labelled()).get("/label?evaluator=groundedness").text
