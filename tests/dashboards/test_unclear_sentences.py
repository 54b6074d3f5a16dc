"""An unclear sentence looks neither supported nor unsupported."""

import pytest

from ragpulse_dashboards.answer import find_sentences, render_answer

from .fake_parts import score


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
