"""An answer's markdown as HTML of listed tags only, and its contexts with the passages that support its sentences.

Answers are hostile text: their HTML does not pass, no image is loaded, a link leads to http or https only.
Sentences and passages are marked from the evidence that the `groundedness` evaluator leaves in its score.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from ragpulse_collector.store.queries.trace_answers import ContextRow, SpanScore
from ragpulse_collector.words.figures import snippet

if TYPE_CHECKING:
    from pydantic import JsonValue


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
    sentences: Sequence["SentenceView"] = (),
    contexts: Sequence["ContextRow"] = (),
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


def _mark(leaves: Sequence[Token], text: str, sentences: Sequence["SentenceView"]) -> None:
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


def _source(text: str, sentence: "SentenceView") -> str:
    place = _within(text, sentence.start, sentence.end)
    return _TARGET.sub("]", text[place] if place else sentence.text)


def _within(text: str, start: int | None, end: int | None) -> slice | None:
    """Return the place in a text, if it is one."""
    valid = start is not None and end is not None and 0 <= start < end <= len(text)
    return slice(start, end) if valid else None


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

    def __init__(self, number: int, sentence: "SentenceView", contexts: Sequence["ContextRow"]) -> None:
        self._number, self._sentence, self._contexts = number, sentence, contexts
        self._linked = False

    def wrap(self, text: str, *, may_link: bool) -> Markup:
        """Return one stretch of the sentence; the first is a link to its evidence."""
        sentence = self._sentence
        if not sentence.claim:
            return Markup('<span class="no-claim" title="no claim: nothing to support">{}</span>').format(text)
        if self._linked or not may_link:
            opening, closing = Markup("<span"), Markup("</span>")
        else:
            target = f"context-{sentence.context}" if sentence.supported else f"closest-{self._number}"
            opening, closing = Markup('<a href="#{}"').format(target), Markup("</a>")
        icon = _WARNING if sentence.support == "unsupported" and not self._linked else ""
        self._linked = True
        attributes = Markup(' class="sentence {}" data-sentence="{}">').format(sentence.support, self._number)
        return opening + attributes + icon + text + closing

    def note(self) -> Markup:
        """Return the note below an unsupported or unclear sentence."""
        if self._sentence.supported or not self._sentence.claim:
            return Markup("")
        reasons = "; ".join(self._sentence.reasons)
        reason = Markup(' <span class="muted">({})</span>').format(snippet(reasons, 240)) if reasons else ""
        unclear = self._sentence.support == "unclear"
        return Markup('<span class="closest{}" id="closest-{}">{}{}{}</span>').format(
            " unclear" if unclear else "", self._number, "Unclear." if unclear else "Not in any context.",
            self._closest(), reason,
        )  # fmt: skip

    def _closest(self) -> Markup:
        index = self._sentence.context
        if index is None or not 0 <= index < len(self._contexts):
            return Markup("")
        row = self._contexts[index]
        place = _within(row.text or "", self._sentence.evidence_start, self._sentence.evidence_end)
        quote = (row.text or "")[place] if place else ""
        name = snippet(row.id, 60) or f"context {index + 1}"
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

    row: "ContextRow"
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


@dataclass(frozen=True, kw_only=True)
class SentenceView:
    """One sentence of the answer with its evidence, as an evaluator left it in its score."""

    text: str
    supported: bool | None
    """None where the evaluator could not decide."""
    start: int | None = None
    end: int | None = None
    context: int | None = None
    """The index of its best context."""
    evidence_start: int | None = None
    evidence_end: int | None = None
    claim: bool = True
    score: float | None = None
    reasons: Sequence[str] = ()

    @property
    def support(self) -> str:
        """`supported`, `unsupported` or `unclear`."""
        return "unclear" if self.supported is None else "supported" if self.supported else "unsupported"


def find_sentences(scores: Iterable["SpanScore"], lead: str = "") -> list[SentenceView]:
    """Return the sentences of the first score that has evidence, the evaluator that leads first; empty without any."""
    for score in sorted(scores, key=lambda score: (score.evaluator != lead, score.evaluator != "groundedness")):
        for part in score.parts.values() if isinstance(score.parts, dict) else ():
            if found := _sentences(part):
                return found
    return []


def _sentences(part: "JsonValue") -> list[SentenceView]:
    items = part if isinstance(part, list) else []
    views = [_sentence(item) for item in items if isinstance(item, dict)]
    found = [view for view in views if view is not None]
    return found if len(found) == len(items) else []


def _sentence(item: Mapping[str, "JsonValue"]) -> SentenceView | None:
    """Return a sentence, or None for what is none; evaluators count contexts from 1."""
    text, supported, score, reasons = (item.get(name) for name in ("text", "supported", "score", "reasons"))
    if not isinstance(text, str) or "supported" not in item:
        return None
    start, end, rank, first, last = (
        _whole(item.get(name)) for name in ("start", "end", "rank", "evidence_start", "evidence_end")
    )
    return SentenceView(
        text=text,
        supported=None if supported is None else bool(supported),
        start=start,
        end=end,
        context=None if rank is None else rank - 1,
        evidence_start=first,
        evidence_end=last,
        claim=item.get("claim") is not False,
        score=score if isinstance(score, int | float) else None,
        reasons=[str(reason) for reason in (reasons if isinstance(reasons, list) else [reasons] if reasons else ())],
    )


def _whole(value: "JsonValue") -> int | None:
    return value if isinstance(value, int) else None


def context_views(contexts: Sequence["ContextRow"], sentences: Sequence[SentenceView]) -> list[ContextView]:
    """Cut each context where evidence begins and ends, with the sentences that each piece supports."""
    views, index = [], 0
    for row in contexts:
        seen = bool(row.text) and not row.superseded
        matches = [(number, item) for number, item in enumerate(sentences) if seen and item.context == index]
        supported = [bool(item.supported) for _, item in matches if item.claim]
        views.append(
            ContextView(
                row=row,
                pieces=_pieces(row.text or "", matches),
                index=index if seen else None,
                used=any(supported) if sentences else None,
                closest=not all(supported),
            )
        )
        index += seen
    return views


def _pieces(text: str, sentences: Sequence[tuple[int, SentenceView]]) -> list[Piece]:
    spans = []
    for number, sentence in sentences:
        place = _within(text, sentence.evidence_start, sentence.evidence_end)
        if place:
            spans.append((place.start, place.stop, number))
    cuts = sorted({0, len(text), *(edge for start, end, _ in spans for edge in (start, end))})
    return [
        Piece(text[left:right], tuple(number for start, end, number in spans if start <= left and right <= end))
        for left, right in pairwise(cuts)
    ]
