"""Comparisons as HTML."""

from collections.abc import Mapping
from typing import Any

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_comparison_is_split_by_a_dimension() -> None:
    """Each value has its own difference and verdict; an undecided one says how many more."""
    text = text_of(client().get("/compare?a=prompt:v6&b=prompt:v7&by=variant").text)
    assert "-0.170 0.880 → 0.710 -0.210 to -0.130" in text.replace("−", "-")
    assert "not enough data about 210 more" in text


def test_a_comparison_that_cannot_be_made_keeps_its_form() -> None:
    """The refusal stands below what was chosen; without a choice the page offers what the range holds."""
    response = client().get("/compare?a=prompt:v6&b=prompt:none")
    assert response.status_code == 404
    assert 'value="prompt:none"' in response.text
    assert "no scores" in text_of(response.text)
    assert "/compare?a=prompt%3Av6&amp;b=prompt%3Av7" in client().get("/compare").text


def test_only_what_was_scored_is_suggested_for_a_comparison() -> None:
    """A version without a score in the range makes no pair, and is not offered."""

    class Unscored(FakeApi):
        def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_metrics(params)
            for line in answer["series"][1:] if params.get("step") == "all" else ():
                line["points"] = [{**point, "n": 0} for point in line["points"]]
            return answer

    assert "/compare?a=prompt" in client().get("/compare").text
    assert "/compare?a=prompt" not in client(Unscored()).get("/compare").text


def test_a_comparison_says_what_is_missing_and_how_large_the_difference_is() -> None:
    """Too few users are not too few answers; the evaluator and the effect size are named."""
    text = text_of(client().get("/compare?a=variant:a&b=variant:b").text)
    assert "needs about 27 more users or sessions by groundedness" in text
    assert "effect size −0.1" in text
    html = client().get("/compare?a=prompt:v6&b=run:abc").text
    assert 'href="/traces?prompt_version=v6"' in html
    assert 'href="/replays/abc"' in html
