"""What of a response is not a sentence: markdown structure, code in fences, citation marks, lists of sources.

`read_markup` blanks it out character by character, so that places in what is left are places in the response.
`find_marks` reads the marks that name a context: `[1]`, `[2,3]`, `[1-3]`, `[^1]`, `【1】`, `(doc 2)`, an id.
No parser of markdown gives the places of inline text, which is why the few constructs that matter are read here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Code", "Mark", "Reading", "find_marks", "read_markup"]

_MARK = re.compile(r"\[([^\[\]\n]{1,80})\](?!\()|【([^【】\n]{1,80})】|\(([^()\n]{1,80})\)")
_NUMBERS = re.compile(
    r"\^?(?:(?:doc(?:ument)?|source|context|passage|ref|chunk|文档|来源|資料|资料|quelle|fuente|fonte)s?\.?\s*#?:?\s*)?"
    r"(\d{1,3}(?:\s*(?:[-–,;、，]|and|&)\s*\^?\d{1,3})*)(?:†[^\]】]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:doc(?:ument)?|source|context|id|ref)s?\.?\s*[:#]\s*", re.IGNORECASE)
_SOURCE = re.compile(
    r"(?:sources?|refs?\.?|references?|citations?|see|siehe|quellen?|fuentes?|fontes?|voir|来源|來源|出处|参见)"
    r"\s*[:：].*|\^[\w-]+|\w*[A-Za-z_][\w./:#-]*\d[\w./:#-]*",
    re.IGNORECASE,
)
"""What a bracket holds where it names a source that need not be a context: "source: ...", a footnote, an id."""
_MAX_RANGE = 50
MAX_MARKS = 100
"""More marks than this are left unread, which bounds the work."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SOURCES = re.compile(
    r"^\W*(?:sources?|references?|citations?|quellen?|fuentes?|fontes?|参考文献|参考资料|来源)\W*[:：][^\n]*"
    r"(?:\n[ \t]*(?:[-*+•]|\d{1,3}[.)]|\[)[^\n]*)*|^[ \t]*\[\^[^\]\n]{1,40}\]:[^\n]*",
    re.MULTILINE | re.IGNORECASE,
)
_TABLE_HEAD = re.compile(r"^[^\n]*\|[^\n]*\n[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t:|-]*)?$", re.MULTILINE)
_LINES = re.compile(
    r"^[ \t]*#{1,6}[ \t][^\n]*$"  # a heading
    r"|^[ \t]*(?:\*\*|__)[^*_\n]{1,120}(?:\*\*|__)[ \t]*:?[ \t]*$"  # a line in bold letters
    r"|^[^\n]+\n=+[ \t]*$"
    r"|^[ \t]*\|[ \t]*\d{1,3}[ \t]*\|"  # the number of a row
    r"|^[ \t]*(?:>[ \t]?)*[ \t]*(?:(?:[-*+•–]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t])?)?"
    r"|<(?:https?://[^>\s]*|sup>[^<\n]{1,20}</sup|/?[a-zA-Z][^>\n]{0,80})>|!\[[^\]\n]*\]\([^)\n]*\)",
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\(([^()\s]*)[^()\n]*\)(?=([\s)\]]*(?:[.,;!?]|$)))?", re.MULTILINE)
_NOISE = re.compile(r"https?://[^\s)\]>]*|\*+|_{2,}|~~|(?<=[^\W\d_]{3})[¹²³⁴-⁹⁰]+|(?<=[.!?,;)])[¹²³⁴-⁹⁰]+")


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark in a response: its place, its text, and the ids or numbers it names."""

    start: int
    end: int
    text: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """One fenced block of code: its text and its place in the response."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A response with everything blank that is no sentence, as long as the response, and its code."""

    text: str
    code: tuple[Code, ...]


def read_markup(response: str, ids: Sequence[str | None] = ()) -> Reading:
    """Blank structure, code and citation marks; `ids` are those of the contexts."""
    known = {i for i in ids if i}
    code = tuple(Code(m.group(2), m.start(2), m.end(2)) for m in _FENCE.finditer(response) if m.group(2).strip())
    text = _FENCE.sub(_blank, response) if code else response
    for pattern in (_SOURCES, _TABLE_HEAD, _LINES):
        text = pattern.sub(_blank, text)
    text = _LINK.sub(lambda match: _link(match, known), text)
    text = _MARK.sub(lambda match: _blank(match) if _cites(match, known) else match.group(), text)
    return Reading(_NOISE.sub(_blank, text).replace("|", " "), code)


def _blank(match: re.Match[str]) -> str:
    """Spaces of the same length; line breaks stay."""
    return re.sub(r"[^\n]", " ", match.group())


def _link(match: re.Match[str], known: set[str]) -> str:
    """Keep the words of a link, unless it cites: its words are an id, or it names a context at the end of a text."""
    words, target = match.group(1), match.group(2)
    names_context = any(i in (words, target) or target.endswith(("/" + i, "#" + i)) for i in known)
    cites = words in known or _NUMBERS.fullmatch(words) or _SOURCE.fullmatch(words) or words == target
    if cites or (names_context and match.group(3) is not None):
        return " " * len(match.group())
    return " " + words + " " * (len(match.group()) - len(words) - 1)


def _cites(match: re.Match[str], known: set[str]) -> bool:
    inner = next(g for g in match.groups() if g is not None).strip()
    round_brackets = match.group().startswith("(")
    if _targets(inner, known, round_brackets=round_brackets):
        return True
    labelled = _SOURCE.fullmatch(inner)
    return bool(labelled) and (not round_brackets or ":" in inner or "：" in inner)


def find_marks(response: str, ids: Sequence[str | None] = ()) -> list[Mark]:
    """Find citation marks; a bracket that is neither numbers nor a known id is ordinary text."""
    known = {i for i in ids if i}
    marks: list[Mark] = []
    for match in _MARK.finditer(response):
        inner = next(g for g in match.groups() if g is not None).strip()
        targets = _targets(inner, known, round_brackets=match.group().startswith("("))
        if targets and len(marks) < MAX_MARKS:
            marks.append(Mark(match.start(), match.end(), match.group(), targets))
    return marks


def _targets(inner: str, known: set[str], *, round_brackets: bool) -> tuple[str, ...]:
    pieces = [_LABEL.sub("", p.strip()) for p in re.split(r"[,;，；]\s*", inner)]
    if any(p in known for p in pieces):
        return tuple(p for p in pieces if p)
    match = _NUMBERS.fullmatch(inner)
    if not match or (round_brackets and inner[0].isdigit()):
        return ()
    return tuple(dict.fromkeys(_expand(match.group(1))))


def _expand(numbers: str) -> Iterator[str]:
    for piece in re.split(r"\s*(?:[,;、，]|and|&)\s*", numbers.replace("^", "")):
        first, dash, last = re.sub(r"\s*[-–]\s*", "-", piece).partition("-")
        if not dash:
            yield str(int(first))
            continue
        for n in range(int(first), min(int(last.partition("-")[0]), int(first) + _MAX_RANGE) + 1):
            yield str(n)
