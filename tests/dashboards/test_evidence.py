"""Sentences tied to evidence."""

import re
from html import unescape

import pytest
from markupsafe import escape

from ragpulse_dashboards import answer
from ragpulse_dashboards.answer import SentenceView, context_views, find_sentences, render_answer
from ragpulse_evaluators import Case, evaluate_sync

from .fake_day import HOSTILE
from .fake_parts import context, score

SENTENCES = [
    SentenceView(text="A is one.", start=0, end=9, supported=True, context=0, evidence_start=4, evidence_end=12),
    SentenceView(text="B is two.", start=10, end=19, supported=False, reasons=["no match"]),
]


def marked(html: str) -> list[tuple[str, str, str]]:
    """Kind, number and text of every marked stretch."""
    found = re.findall(r'class="sentence (\w+)" data-sentence="(\d+)">(?:<svg.*?</svg>)?(.*?)</(?:a|span)>', html)
    return [(kind, number, unescape(text)) for kind, number, text in found]


def test_sentences_are_marked_in_rendered_markdown() -> None:
    """Markup inside a sentence splits its mark, white space and link targets do not hide it; the rest is unmarked."""
    text = "# Plans\n\n**Team** has\n[SSO](https://a.example/x). Trials last `90` days.\n\n- Hello!\n\nBye"
    parts = ("**Team** has\n[SSO](https://a.example/x).", "Trials last `90` days.", "Hello!", "nowhere")
    sentences = [
        SentenceView(text=part, supported=number != 1, claim=number != 2, context=0, reasons=["no 90"],
                     evidence_start=4, evidence_end=8)
        for number, part in enumerate(parts)
    ]  # fmt: skip
    html = render_answer(text, sentences, [context("see this", id="a<b")])
    assert marked(html) == [
        ("supported", "0", "Team"), ("supported", "0", "has"), ("supported", "0", "SSO"),
        ("unsupported", "1", "Trials last"), ("unsupported", "1", "90"), ("unsupported", "1", "days."),
    ]  # fmt: skip
    assert 'Not in any context. Closest: <a href="#context-0">a&lt;b</a>, <q>this</q>' in html
    assert '<span class="muted">(no 90)</span></span></p>' in html
    assert '<span class="no-claim" title="no claim: nothing to support">Hello!</span>' in html
    assert '<p class="heading">Plans</p>' in html
    assert "Bye" in html


@pytest.mark.parametrize(
    "text",
    [
        *HOSTILE,
        "[x](javascript:alert(1)) ![x](https://evil.example/x.png) <https://evil.example> <javascript:alert(1)>",
        "[x](data:text/html,x) [y][z]\n\n[z]: vbscript:x\n\n| a |\n|:--|\n| <b onclick=x> |",
        '`<script>`\n\n```<script>\n<img src=x onerror=y>\n```\n\n[a](https://a.example "t" onclick=x)',
        "> " * 500 + "x" + "[" * 5000 + "*" * 5000,
    ],
)
def test_markdown_makes_nothing_that_acts(text: str) -> None:
    """Only listed tags come out; links lead to http and https and carry rel; no image, no handler, no style."""
    sentence = SentenceView(text=text, supported=False, context=0, reasons=[text])
    html = render_answer(text, [sentence], [context(id=text)])
    tags = set(re.findall(r"<([a-z]\w*)", html))
    assert tags <= {"p", "a", "span", "svg", "path", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "br",
                    "ul", "ol", "li", "blockquote", "em", "strong", "s", "q", "hr"}  # fmt: skip
    for attributes in re.findall(r"<[a-z]\w*((?:[^>\"]|\"[^\"]*\")*)>", html):
        names = set(re.findall(r"([\w-]+)=\"", attributes))
        assert not names & {"src", "style", "srcset", "onclick", "onerror", "onload"}
    for url in re.findall(r'href="([^"]*)"', html):
        assert url.startswith(("https://", "http://", "#"))


def test_the_evidence_of_groundedness_is_found() -> None:
    """The evaluator's own result names the context of each sentence, also the closest one of an unsupported one."""
    texts = ["Backups are made every night.", "Backups are kept for 35 days."]
    case = Case(
        query="How long?", response="Backups are kept for 35 days. Backups are kept on 9 disks.", contexts=texts
    )
    (result,) = evaluate_sync([case], ["groundedness"])["groundedness"]
    sentences = find_sentences([score(evaluator="groundedness", parts=result.parts)])
    first, second = context_views([context(text) for text in texts], sentences)
    assert [sentence.supported for sentence in sentences] == [True, False]
    assert (first.used, second.used) == (False, True)
    html = render_answer(str(case.response), sentences, [context(texts[0], id="a"), context(texts[1], id="b")])
    assert re.search(r'Not in any context. Closest: <a href="#context-\d">', html)


def test_contexts_know_whether_they_were_used() -> None:
    """Evidence is marked inside its context; a context without supported sentences is unused."""
    first, second = context_views([context("see: A is one, yes"), context("other")], SENTENCES)
    assert (first.used, second.used) == (True, False)
    assert [(piece.text, piece.sentences) for piece in first.pieces] == [
        ("see:", ()),
        (" A is on", (0,)),
        ("e, yes", ()),
    ]


def test_evidence_counts_the_contexts_that_evaluators_see() -> None:
    """Contexts without text and superseded ones have no number, so evidence lands on the right one; unused fold."""
    rows = [context(), context("see: A is one, yes"), context("other"), context("A is one", superseded=True)]
    views = context_views(rows, [*SENTENCES, SentenceView(text="C", supported=False, context=1)])
    assert [one.index for one in views] == [None, 0, 1, None]
    assert [(one.used, one.closest, one.relevant) for one in views] == [
        (False, False, False), (True, False, True), (False, True, True), (False, False, False)
    ]  # fmt: skip


def test_overlapping_evidence_shares_a_piece() -> None:
    """Two sentences resting on overlapping passages both light the shared part."""
    sentences = [
        SentenceView(text="a", supported=True, context=0, evidence_start=0, evidence_end=4),
        SentenceView(text="b", supported=True, context=0, evidence_start=2, evidence_end=6),
    ]
    (view,) = context_views([context("abcdef")], sentences)
    assert [piece.sentences for piece in view.pieces] == [(0,), (0, 1), (1,)]


def test_without_evidence_nothing_is_claimed() -> None:
    """No score with sentence evidence: plain text, and used is unknown rather than false."""
    assert find_sentences([score(evaluator="groundedness", parts={"sentences": []}), score(parts=None)]) == []
    assert context_views([context("t")], [])[0].used is None
    assert render_answer("plain") == "<p>plain</p>"


@pytest.mark.parametrize("sign", ["[", "![", "|\n", "* a\n", "a|b\n-|-\n", "plain text "])
def test_a_long_answer_is_shown_as_text(sign: str) -> None:
    """Whatever it holds, parsing it would take seconds for each view of the page."""
    text = sign * (99_000 // len(sign))
    html = render_answer(text)
    assert html == f'<p>{answer.AS_TEXT}</p><pre class="code" tabindex="0">{escape(text)}</pre>'
