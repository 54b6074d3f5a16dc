"""An unclear sentence or answer looks neither supported nor unsupported."""

import re
from typing import Any

import pytest

from ragpulse_dashboards.answer import find_sentences, render_answer
from ragpulse_dashboards.mount import environment, load_assets

from .fake_parts import score
from .reading import client


@pytest.mark.parametrize(
    ("supported", "kind", "warns"),
    [(True, "supported", False), (False, "unsupported", True), (None, "unclear", False)],
)
def test_each_support_has_its_mark(supported: bool | None, kind: str, warns: bool) -> None:
    """Only an unsupported sentence warns; the note of an unclear one does not say that it is in no context."""
    row = {"text": "It is tall.", "start": 0, "end": 11, "supported": supported, "rank": None, "reasons": ["too free"]}
    sentences = find_sentences([score(evaluator="groundedness", parts={"sentences": [row]})])
    html = str(render_answer("It is tall.", sentences))
    assert sentences[0].support == kind
    assert f'class="sentence {kind}"' in html
    assert ("warn-icon" in html) is warns
    assert ("Not in any context." in html) is warns
    assert ("Unclear." in html) is (supported is None)


@pytest.mark.parametrize(
    ("result", "mark"),
    [
        ({"normalized": 0.4, "passing": None, "label": "unclear"}, "unclear 0.40"),
        ({"normalized": 0.4, "passing": False, "label": "ungrounded"}, "✕ 0.40 failing"),
        ({"normalized": 0.9, "passing": True, "label": "grounded"}, "0.90 passing"),
        ({"normalized": 0.9, "passing": None, "label": None}, "0.90"),
    ],
)
def test_the_list_marks_an_unclear_answer_before_its_figure(result: dict[str, Any], mark: str) -> None:
    """The word stands where a failing answer has its cross."""
    macros = environment(load_assets()).get_template("parts/macros.html").make_module()
    assert " ".join(re.sub("<[^>]*>", " ", str(macros.score(result))).split()) == mark  # type: ignore[attr-defined]


@pytest.mark.parametrize(("b", "told"), [("prompt:v7", True), ("variant:b", False)])
def test_compare_says_that_the_wording_changed(b: str, told: bool) -> None:
    """The score moves with the wording, too: the page says so where the unclear share moved."""
    page = client().get("/compare", params={"a": b.replace("7", "6").replace(":b", ":a"), "b": b}).text
    assert ("Wording changed: it decides 30 % instead of 90 % of the answers." in page) is told
