"""An answer's markdown as HTML that holds only what is listed here, with its sentences marked.

Answers are hostile text: no HTML of theirs passes, no image is loaded, a link leads to http or https only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from ragpulse_dashboards.formats import snippet

__all__ = ["render_answer"]

MAX_CHARS: Final = 100_000
"""A longer answer is shown as plain text: the parser's time must stay small."""
_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_TARGET: Final = re.compile(r"\]\([^()\s]*\)")
"""Where a link leads, which is not shown."""
_TAGS: Final = frozenset({
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td",
})  # fmt: skip
_ALONE: Final = {"softbreak": "\n", "hardbreak": Markup("<br>"), "hr": Markup("<hr>")}
_HEADINGS: Final = {"heading_open": Markup('<p class="heading">'), "heading_close": Markup("</p>")}
"""The headings of an answer are no headings of the page around it."""
_WARNING: Final = Markup(
    '<svg class="warn-icon" viewBox="0 0 16 16" width="14" height="14" role="img" aria-label="Not supported:">'
    '<path d="M8 1.6 15 14H1z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"/>'
    '<path d="M8 6v4M8 11.6v.6" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/></svg>'
)


def render_answer(
    text: str, sentences: Sequence[Mapping[str, Any]] = (), contexts: Sequence[Mapping[str, Any]] = ()
) -> Markup:
    """Return the answer as HTML; below an unsupported sentence stands the closest text of the contexts.

    A sentence that cannot be found in the rendered text is not marked.
    """
    tokens = _tokens(text)
    leaves = [token for token in tokens if token.type in ("text", "code_inline")]
    _mark(leaves, text, sentences)
    page = _Page([_Mark(number, one, contexts) for number, one in enumerate(sentences)])
    return Markup("").join(page.pieces(tokens))


def _tokens(text: str) -> list[Token]:
    """The tokens of a text in one row, with those inside of paragraphs."""
    if len(text) > MAX_CHARS:
        return [Token("fence", "code", 0, content=text)]
    blocks = _PARSER.parse(text)
    return [one for block in blocks for one in (block.children or () if block.type == "inline" else (block,))]


def _mark(leaves: Sequence[Token], text: str, sentences: Sequence[Mapping[str, Any]]) -> None:
    """Note in each leaf which parts of it belong to which sentence.

    Sentences are found by their letters and digits alone: markup and white space are another in the source.
    """
    letters = [(leaf, at) for leaf in leaves for at, sign in enumerate(leaf.content) if sign.isalnum()]
    shown = "".join(leaf.content[at] for leaf, at in letters)
    position = 0
    for number, sentence in enumerate(sentences):
        wanted = "".join(filter(str.isalnum, _source(text, sentence)))
        at = shown.find(wanted, position) if wanted else -1
        if at >= 0:
            position = at + len(wanted)
            for leaf, first, last in _runs(letters[at:position]):
                leaf.meta.setdefault("marks", []).append((first, last, number))
            leaf.meta.setdefault("ends", set()).add(number)


def _source(text: str, sentence: Mapping[str, Any]) -> str:
    start, end = sentence.get("start"), sentence.get("end")
    known = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text)
    return _TARGET.sub("]", text[start:end] if known else str(sentence["text"]))


def _runs(letters: Sequence[tuple[Token, int]]) -> Iterator[tuple[Token, int, int]]:
    """The leaves that the letters are in, each with the first and the last place, punctuation at the end included."""
    ends: dict[int, tuple[Token, int, int]] = {}
    for leaf, at in letters:
        ends[id(leaf)] = (leaf, ends[id(leaf)][1] if id(leaf) in ends else at, at + 1)
    for leaf, first, last in ends.values():
        while last < len(leaf.content) and not leaf.content[last].isalnum() and not leaf.content[last].isspace():
            last += 1
        yield leaf, first, last


class _Mark:
    """How one sentence is shown."""

    def __init__(self, number: int, sentence: Mapping[str, Any], contexts: Sequence[Mapping[str, Any]]) -> None:
        self._number, self._sentence, self._contexts = number, sentence, contexts
        self._supported, self._claims = bool(sentence.get("supported")), sentence.get("claim") is not False
        self._linked = False

    def around(self, text: str, *, may_link: bool) -> Markup:
        """Return one stretch of the sentence; the first one is a link to its evidence."""
        if not self._claims:
            return Markup('<span class="no-claim" title="no claim: nothing to support">{}</span>').format(text)
        kind = "supported" if self._supported else "unsupported"
        if self._linked or not may_link:
            opening, closing = Markup("<span"), Markup("</span>")
        else:
            to = f"context-{self._sentence.get('context')}" if self._supported else f"closest-{self._number}"
            opening, closing = Markup('<a href="#{}"').format(to), Markup("</a>")
        icon = "" if self._supported or self._linked else _WARNING
        self._linked = True
        return (
            opening
            + Markup(' class="sentence {}" data-sentence="{}">').format(kind, self._number)
            + icon
            + text
            + closing
        )

    def note(self) -> Markup:
        """Return what stands below an unsupported sentence."""
        if self._supported or not self._claims:
            return Markup("")
        reasons = self._sentence.get("reasons") or ()
        why = reasons if isinstance(reasons, str) else "; ".join(str(one) for one in reasons)
        reason = Markup(' <span class="muted">({})</span>').format(snippet(why, 240)) if why else ""
        shown = self._closest() + reason
        return Markup('<span class="closest" id="closest-{}">Not in any context.{}</span>').format(self._number, shown)

    def _closest(self) -> Markup:
        at = self._sentence.get("context")
        if not isinstance(at, int) or not 0 <= at < len(self._contexts):
            return Markup("")
        row = self._contexts[at]
        start, end = self._sentence.get("evidence_start"), self._sentence.get("evidence_end")
        quoted = str(row.get("text") or "")[start:end] if isinstance(start, int) and isinstance(end, int) else ""
        name = snippet(row.get("id"), 60) or f"context {at + 1}"
        link = Markup(' Closest: <a href="#context-{}">{}</a>').format(at, name)
        return link + (Markup(", <q>{}</q>").format(snippet(quoted, 240)) if quoted else "")


class _Page:
    """Turns tokens into HTML; a note waits for the next sentence or the end of its block."""

    def __init__(self, marks: Sequence[_Mark]) -> None:
        self._marks = marks
        self._links: list[bool] = []
        self._notes = Markup("")

    def pieces(self, tokens: Sequence[Token]) -> Iterator[Markup]:
        """The HTML of each token in order."""
        for token in tokens:
            if token.block and token.nesting < 0:
                yield self._noted()
            if token.type == "link_open":
                yield self._link(str(token.attrGet("href") or ""))
            elif token.type == "link_close":
                yield Markup("</a>" if self._links.pop() else "")
            elif token.type in ("text", "code_inline"):
                text = Markup("").join(self._leaf(token))
                yield text if token.type == "text" else Markup("<code>{}</code>").format(text)
            else:
                yield _plain(token)

    def _noted(self) -> Markup:
        notes, self._notes = self._notes, Markup("")
        return notes

    def _link(self, url: str) -> Markup:
        self._links.append(_leads_out(url))
        return Markup('<a href="{}" rel="noopener noreferrer">').format(url) if self._links[-1] else Markup("")

    def _leaf(self, token: Token) -> Iterator[Markup]:
        position = 0
        for first, last, number in token.meta.get("marks", ()):
            yield escape(token.content[position:first])
            yield self._noted()
            yield self._marks[number].around(token.content[first:last], may_link=not self._links)
            position = last
            if number in token.meta.get("ends", ()):
                self._notes += self._marks[number].note()
        yield escape(token.content[position:])


def _leads_out(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _plain(token: Token) -> Markup:
    """A token without sentences: what is not listed here is left out."""
    if token.type in ("fence", "code_block"):
        return Markup('<pre class="code" tabindex="0">{}</pre>').format(token.content)
    if token.type == "image":
        return Markup("[image: {}]").format(token.content)
    if token.type in _ALONE:
        return escape(_ALONE[token.type])
    if token.type in _HEADINGS:
        return _HEADINGS[token.type]
    if token.tag in _TAGS and not token.hidden:
        start = token.attrGet("start") if token.type == "ordered_list_open" else None
        number = Markup(' start="{}"').format(int(start)) if start is not None else ""
        return Markup("</{}>" if token.nesting < 0 else "<{}{}>").format(token.tag, number)
    return Markup("")
