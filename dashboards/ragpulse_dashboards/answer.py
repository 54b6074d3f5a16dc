"""An answer's markdown as HTML of listed tags only, and its contexts with the passages that support its sentences.

Answers are hostile text: their HTML does not pass, no image is loaded, a link leads to http or https only.
Sentences and passages are marked from the evidence that the `groundedness` evaluator leaves in its score.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from ragpulse_dashboards.formats import snippet

__all__ = ["context_views", "find_sentences", "render_answer"]

MAX_CHARS: Final = 20_000
"""A longer answer is plain text: whatever its signs are, parsing this much takes less than half a second."""
AS_TEXT: Final = "This answer is long: it is shown as text."
_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_TARGET: Final = re.compile(r"\]\([^()\s]*\)")
"""The address of a link, which is not in the rendered text."""
_TAGS: Final = frozenset({
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td",
})  # fmt: skip
_SINGLE: Final = {"softbreak": "\n", "hardbreak": Markup("<br>"), "hr": Markup("<hr>")}
_HEADINGS: Final = {"heading_open": Markup('<p class="heading">'), "heading_close": Markup("</p>")}
"""A heading of an answer is a paragraph: the page has headings of its own."""
_WARNING: Final = Markup(
    '<svg class="warn-icon" viewBox="0 0 16 16" width="14" height="14" role="img" aria-label="Not supported:">'
    '<path d="M8 1.6 15 14H1z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"/>'
    '<path d="M8 6v4M8 11.6v.6" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/></svg>'
)


def render_answer(
    text: str,
    sentences: Sequence[Mapping[str, Any]] = (),
    contexts: Sequence[Mapping[str, Any]] = (),
    *,
    as_text: bool = False,
) -> Markup:
    """Return the answer as HTML; the closest text of the contexts stands below an unsupported sentence.

    A sentence that is not in the rendered text is not marked.
    """
    tokens = _text_tokens(text) if as_text or len(text) > MAX_CHARS else _tokens(text)
    leaves = [token for token in tokens if token.type in ("text", "code_inline")]
    _mark(leaves, text, sentences)
    writer = _Writer([_Mark(number, sentence, contexts) for number, sentence in enumerate(sentences)])
    return Markup("").join(writer.pieces(tokens))


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a text as one list, those inside paragraphs included."""
    blocks = _PARSER.parse(text)
    return [token for block in blocks for token in (block.children or () if block.type == "inline" else (block,))]


def _text_tokens(text: str) -> list[Token]:
    note = [Token("paragraph_open", "p", 1), Token("text", "", 0, content=AS_TEXT), Token("paragraph_close", "p", -1)]
    return [*note, Token("fence", "code", 0, content=text)]


def _mark(leaves: Sequence[Token], text: str, sentences: Sequence[Mapping[str, Any]]) -> None:
    """Note in each leaf which parts of it belong to which sentence.

    Only letters and digits are compared: markup and white space differ between source and rendered text.
    """
    letters = [(leaf, index) for leaf in leaves for index, sign in enumerate(leaf.content) if sign.isalnum()]
    rendered = "".join(leaf.content[index] for leaf, index in letters)
    position = 0
    for number, sentence in enumerate(sentences):
        pattern = "".join(filter(str.isalnum, _source(text, sentence)))
        start = rendered.find(pattern, position) if pattern else -1
        if start >= 0:
            position = start + len(pattern)
            for leaf, first, last in _runs(letters[start:position]):
                leaf.meta.setdefault("marks", []).append((first, last, number))
            leaf.meta.setdefault("ends", set()).add(number)


def _source(text: str, sentence: Mapping[str, Any]) -> str:
    start, end = sentence.get("start"), sentence.get("end")
    valid = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text)
    return _TARGET.sub("]", text[start:end] if valid else sentence["text"])


def _runs(letters: Sequence[tuple[Token, int]]) -> Iterator[tuple[Token, int, int]]:
    """Yield the leaves of the letters, each with the first and last index, punctuation at the end included."""
    runs: dict[int, tuple[Token, int, int]] = {}
    for leaf, index in letters:
        runs[id(leaf)] = (leaf, runs[id(leaf)][1] if id(leaf) in runs else index, index + 1)
    for leaf, first, last in runs.values():
        while last < len(leaf.content) and not leaf.content[last].isalnum() and not leaf.content[last].isspace():
            last += 1
        yield leaf, first, last


class _Mark:
    """How one sentence looks."""

    def __init__(self, number: int, sentence: Mapping[str, Any], contexts: Sequence[Mapping[str, Any]]) -> None:
        self._number, self._sentence, self._contexts = number, sentence, contexts
        self._kind = support_of(sentence)
        self._supported, self._claims = self._kind == "supported", sentence.get("claim") is not False
        self._linked = False

    def wrap(self, text: str, *, may_link: bool) -> Markup:
        """Return one stretch of the sentence; the first is a link to its evidence."""
        if not self._claims:
            return Markup('<span class="no-claim" title="no claim: nothing to support">{}</span>').format(text)
        if self._linked or not may_link:
            opening, closing = Markup("<span"), Markup("</span>")
        else:
            target = f"context-{self._sentence.get('context')}" if self._supported else f"closest-{self._number}"
            opening, closing = Markup('<a href="#{}"').format(target), Markup("</a>")
        icon = _WARNING if self._kind == "unsupported" and not self._linked else ""
        self._linked = True
        attributes = Markup(' class="sentence {}" data-sentence="{}">').format(self._kind, self._number)
        return opening + attributes + icon + text + closing

    def note(self) -> Markup:
        """Return the note below an unsupported or unclear sentence."""
        if self._supported or not self._claims:
            return Markup("")
        reasons = "; ".join(map(str, self._sentence.get("reasons") or ()))
        reason = Markup(' <span class="muted">({})</span>').format(snippet(reasons, 240)) if reasons else ""
        unclear = self._kind == "unclear"
        return Markup('<span class="closest{}" id="closest-{}">{}{}{}</span>').format(
            " unclear" if unclear else "", self._number, "Unclear." if unclear else "Not in any context.",
            self._closest(), reason,
        )  # fmt: skip

    def _closest(self) -> Markup:
        index = self._sentence.get("context")
        if not isinstance(index, int) or not 0 <= index < len(self._contexts):
            return Markup("")
        row = self._contexts[index]
        start, end = self._sentence.get("evidence_start"), self._sentence.get("evidence_end")
        quote = (row.get("text") or "")[start:end] if isinstance(start, int) and isinstance(end, int) else ""
        name = snippet(row.get("id"), 60) or f"context {index + 1}"
        link = Markup(' Closest: <a href="#context-{}">{}</a>').format(index, name)
        return link + (Markup(", <q>{}</q>").format(snippet(quote, 240)) if quote else "")


class _Writer:
    """Turns tokens into HTML; a note comes before the next sentence or at the end of its block."""

    def __init__(self, marks: Sequence[_Mark]) -> None:
        self._marks = marks
        self._links: list[bool] = []
        self._notes = Markup("")

    def pieces(self, tokens: Sequence[Token]) -> Iterator[Markup]:
        """Yield the HTML of each token."""
        for token in tokens:
            if token.block and token.nesting < 0:
                yield self._take_notes()
            if token.type == "link_open":
                yield self._link(str(token.attrGet("href") or ""))
            elif token.type == "link_close":
                yield Markup("</a>" if self._links.pop() else "")
            elif token.type in ("text", "code_inline"):
                text = Markup("").join(self._leaf(token))
                yield text if token.type == "text" else Markup("<code>{}</code>").format(text)
            else:
                yield _plain(token)

    def _take_notes(self) -> Markup:
        notes, self._notes = self._notes, Markup("")
        return notes

    def _link(self, url: str) -> Markup:
        self._links.append(_is_web_link(url))
        return Markup('<a href="{}" rel="noopener noreferrer">').format(url) if self._links[-1] else Markup("")

    def _leaf(self, token: Token) -> Iterator[Markup]:
        position = 0
        for first, last, number in token.meta.get("marks", ()):
            yield escape(token.content[position:first])
            yield self._take_notes()
            yield self._marks[number].wrap(token.content[first:last], may_link=not self._links)
            position = last
            if number in token.meta.get("ends", ()):
                self._notes += self._marks[number].note()
        yield escape(token.content[position:])


def _is_web_link(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _plain(token: Token) -> Markup:
    """Return a token without sentences; anything that is not listed here is left out."""
    if token.type in ("fence", "code_block"):
        return Markup('<pre class="code" tabindex="0">{}</pre>').format(token.content)
    if token.type == "image":
        return Markup("[image: {}]").format(token.content)
    if token.type in _SINGLE:
        return escape(_SINGLE[token.type])
    if token.type in _HEADINGS:
        return _HEADINGS[token.type]
    if token.tag in _TAGS and not token.hidden:
        start = token.attrGet("start") if token.type == "ordered_list_open" else None
        number = Markup(' start="{}"').format(int(start)) if start is not None else ""
        return Markup("</{}>" if token.nesting < 0 else "<{}{}>").format(token.tag, number)
    return Markup("")


class Piece(NamedTuple):
    """A stretch of text; pieces in order are the whole text, unchanged."""

    text: str
    sentences: tuple[int, ...]
    """Numbers of the sentences whose best evidence it is."""


@dataclass(frozen=True, kw_only=True)
class ContextView:
    """One retrieved context with its evidence marked."""

    row: Mapping[str, Any]
    pieces: Sequence[Piece]
    index: int | None
    """Its index among the contexts that evaluators see; None for a superseded one and for one without text."""
    used: bool | None
    """Whether it supports any sentence; None when nothing was checked."""
    closest: bool
    """Whether it is the closest to an unsupported sentence."""

    @property
    def relevant(self) -> bool:
        """Whether it shows where the answer came from; the others are folded."""
        return self.used is not False or self.closest


def find_sentences(scores: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the sentences of the first score that has evidence, groundedness first; empty when there is none."""
    for score in sorted(scores, key=lambda score: score.get("evaluator") != "groundedness"):
        parts = score.get("parts")
        for part in parts.values() if isinstance(parts, Mapping) else ():
            if _is_evidence(part):
                return [_sentence(item) for item in part]
    return []


def support_of(sentence: Mapping[str, Any]) -> str:
    """Return `supported`, `unsupported`, or `unclear` where the evaluator could not decide (null)."""
    supported = sentence.get("supported")
    return "unclear" if supported is None else "supported" if supported else "unsupported"


def _sentence(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence with the index of its best context, which evaluators count from 1."""
    rank = item.get("rank")
    index = rank - 1 if isinstance(rank, int) else None
    return {**item, "context": index, "claim": item.get("claim") is not False, "support": support_of(item)}


def _is_evidence(part: Any) -> bool:
    return (
        isinstance(part, list)
        and bool(part)
        and all(
            isinstance(item, Mapping) and isinstance(item.get("text"), str) and "supported" in item for item in part
        )
    )


def context_views(contexts: Sequence[Mapping[str, Any]], sentences: Sequence[Mapping[str, Any]]) -> list[ContextView]:
    """Cut each context where evidence begins and ends, with the sentences that each piece supports."""
    views, index = [], 0
    for row in contexts:
        seen = bool(row.get("text")) and not row.get("superseded")
        matches = [(number, item) for number, item in enumerate(sentences) if seen and item.get("context") == index]
        supported = [bool(item.get("supported")) for _, item in matches if item.get("claim") is not False]
        views.append(
            ContextView(
                row=row,
                pieces=_pieces(row.get("text") or "", matches),
                index=index if seen else None,
                used=any(supported) if sentences else None,
                closest=not all(supported),
            )
        )
        index += seen
    return views


def _pieces(text: str, sentences: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Piece]:
    spans = []
    for number, sentence in sentences:
        start, end = sentence.get("evidence_start"), sentence.get("evidence_end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            spans.append((start, end, number))
    cuts = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    return [
        Piece(text[left:right], tuple(number for start, end, number in spans if start <= left and right <= end))
        for left, right in pairwise(cuts)
    ]
