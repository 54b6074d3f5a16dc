"""Texts without a visible character: links, headings and rows have words all the same."""

import re
from typing import Any

import pytest

from ragpulse_collector.words.figures import snippet, worded

from .fake_api import FakeApi
from .reading import client, text_of

BLANK = (" ", "\n\t", "\u200b", "\u200d\ufeff", "\u00a0", "\u2028")


@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_blank_texts_have_words(text: str) -> None:
    """Only a missing text has none."""
    assert (worded(text), snippet(text)) == ("(blank)", "(blank)")


@pytest.mark.parametrize(
    ("text", "shown"), [(None, ""), ("", ""), ("a", "a"), (" a\n b ", "a b"), ("\u202e", "\ufffd")]
)
def test_other_texts_stay(text: Any, shown: str) -> None:
    """White space is folded, as before."""
    assert snippet(text) == shown


@pytest.mark.parametrize("text", BLANK[:3], ids=ascii)
def test_no_link_and_no_heading_is_empty(text: str) -> None:
    """A question and a user that are blank, in the lists and on the pages of one."""
    api = FakeApi()
    for row in api.rows:
        row |= {"query": text, "user_id": text, "session_id": text}
    for path in ("/traces", f"/traces/{api.rows[0]['trace_id']}", "/label", "/worst?evaluator=groundedness"):
        html = client(api).get(path).text
        found = re.findall(r"<(a|h1|h2)\b(?![^>]*aria-label)[^>]*>(.*?)</\1>", html, re.DOTALL)
        assert [inside for _, inside in found if not re.sub(r"[\s\u200b]", "", text_of(inside))] == [], path
