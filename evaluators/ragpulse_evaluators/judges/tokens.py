"""Takes a judge's reply apart: what is reasoning, what is JSON, and what the words claim.

Marks (`<think>`, `<answer>`, labels) count outside JSON and quotations only: a quoted verdict is not the judge's.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict

from ragpulse_evaluators.errors import ConfigurationError, Unreadable, excerpt
from ragpulse_evaluators.judges.replies import Fields, JsonObject

Value = TypeVar("Value")
LANGUAGES = ("en", "zh", "pt")


class Words(BaseModel):
    """A language's words for yes, no, a tie, nothing, and its labels before a verdict; stored beside the prompts."""

    model_config = ConfigDict(frozen=True)

    language: str
    yes: frozenset[str]
    no: frozenset[str]
    good: frozenset[str]
    """By themselves, a yes to whether something is as it should be."""
    bad: frozenset[str]
    alone: frozenset[str]
    """Words of a verdict that also begin sentences ("No issues"): by themselves, in capitals, or before `after`."""
    after: frozenset[str]
    tie: frozenset[str]
    none: frozenset[str]
    labels: tuple[str, ...]
    weak: tuple[str, ...]
    """Labels that material has, too: they count on the first and the last line only."""
    before: tuple[str, ...]
    """Words before a label."""
    final: tuple[str, ...]
    copulas: tuple[str, ...]
    leads: tuple[str, ...]
    """Words before a verdict."""
    numbers: tuple[str, ...]
    """From zero on."""
    guard: str
    repair: str
    examples: str
    canary: str
    canary_line: str
    history: str
    reply: str
    close: str
    question: str
    """The default question of the evaluator `judge`."""


@cache
def words_of(language: str) -> Words:
    """Verdict words of a language; raises `ConfigurationError` for one without prompt files."""
    if language not in LANGUAGES:
        raise ConfigurationError(f"language {language!r} has no prompts; choose one of {', '.join(LANGUAGES)}")
    path = resources.files("ragpulse_evaluators") / "prompts" / f"words.{language}.json"
    return Words.model_validate_json(path.read_bytes())


_DEEPEST, _MOST_TRIES, _MOST_OBJECTS, _LONGEST = 64, 64, 1000, 50_000
"""Levels of an object, braces tried that begin none, objects, and characters of one that is no strict JSON."""
_PIECE = re.compile(
    r'"(?:[^"\\]|\\.|"(?!\s*(?:[,:}\]#|]|//|/\*|$)))*+"?'
    r"|'(?:[^'\\]|\\.|'(?!\s*(?:[,:}\]#|]|//|/\*|$)))*+'?|[“”](?:[^”\\]|\\.)*+”?"
    r"|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|(?<!\S)\#[^\n]*|[{}\[\],:]"
    r"|(?:(?!//|/\*)[^\s{}\[\],:\"'“”]|(?<=\w)'(?=\w))+(?:[ \t]+(?!//|/\*|\#)(?:[^\s{}\[\],:\"'“”]|(?<=\w)'(?=\w))+)*+",
    re.DOTALL,
)
"""The tokens of an object that is no strict JSON: strings, comments, marks, bare words. A quote that nothing of JSON
follows belongs to the text."""
_ESCAPE = re.compile(r'(?<!\\)"|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(?<!\\\\)')
"""What strict JSON escapes, or does not know."""
_LITERALS = {"true": "true", "false": "false", "null": "null", "none": "null", "nan": "NaN", "infinity": "NaN"}
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def folded_key(key: str) -> str:
    """A key without regard to case, spaces, hyphens, and to whether it says that it is the last word."""
    return re.sub(r"^(?:final|overall)_", "", re.sub(r"[\s-]", "_", key.strip().casefold()))


def _agreeing(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object in which no key has two values."""
    seen = JsonObject()
    for key, value in pairs:
        if seen.setdefault(folded_key(key), value) != value:
            raise ValueError(f"two values of {key}")
    return dict(pairs)


_QUOTE = re.compile(r"(?<!\d)\"|[“”]")
_DECODER = json.JSONDecoder(parse_constant=_no_constant, strict=False, object_pairs_hook=_agreeing)


@lru_cache(maxsize=8)
def apart(text: str) -> tuple[list[JsonObject], str]:
    """The JSON objects of a text that are not empty, without those within others; and the text with blanks for them.

    Comments, bare words, single quotes, a trailing comma, line breaks within strings, quotes that are not escaped and
    Python's True, False and None are accepted. Two values of one key are not, and what is quoted is no object.
    """
    objects: list[JsonObject] = []
    pieces, last, tries, position, seen, quoted = [], 0, 0, text.find("{"), 0, False
    while position >= 0 and tries < _MOST_TRIES and len(objects) < _MOST_OBJECTS:
        quoted ^= len(_QUOTE.findall(text, seen, position)) % 2 > 0
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = _lenient(text, position)
        if value and not quoted:
            objects.append(value)
            pieces += [text[last:position], " " * (end - position)]
            last = end
        tries += not value
        seen = end if value else position
        position = text.find("{", end)
    return objects, "".join(pieces) + text[last:]


def _lenient(text: str, start: int) -> tuple[JsonObject | None, int]:
    """The object that begins at `start`, and its end; None where it is none."""
    pieces: list[str] = []
    depth = 0
    for piece in _PIECE.finditer(text, start, start + _LONGEST):
        word = piece[0]
        depth += (word in "{[") - (word in "}]")
        if depth > _DEEPEST:
            break
        if word[0] == "#" or word[:2] in ("//", "/*"):
            continue
        if word in "}]" and pieces[-1] == ",":
            pieces.pop()
        pieces.append(_as_json(word))
        if not depth:
            try:
                value = _DECODER.decode("".join(pieces))
            except (ValueError, RecursionError):
                break
            return (value if isinstance(value, dict) else None), piece.end()
    return None, start + 1


def _as_json(word: str) -> str:
    if word[0] in "\"'“”":
        return '"' + _ESCAPE.sub(r"\\\g<0>", word[1:-1]) + '"'
    if word in "{}[],:" or _PLAIN_NUMBER.fullmatch(word):
        return word
    return _LITERALS.get(word.casefold()) or json.dumps(word)


def is_json(text: str) -> bool:
    """Whether a reply is meant as JSON: it holds an object, or begins as one (whose end may be missing)."""
    return text.lstrip("`json \n").startswith("{") or bool(apart(text)[0])


def unwrapped(reply: Fields, keys: Collection[str]) -> JsonObject:
    """The reply with folded keys; without any of `keys`, the only object in it is read instead ("result", "arguments").

    An object under the only key is read itself, too, unless that key alone is one of `keys`.
    """
    folded, known = {folded_key(key): value for key, value in reply.items()}, set(keys)
    while len(inner := [value for value in folded.values() if isinstance(value, dict)]) == 1:
        within = {folded_key(key): value for key, value in inner[0].items()}
        is_here = folded.keys() & known
        if (is_here and not within.keys() & known) or (len(folded) > 1 and (is_here or not known)):
            break
        folded = within
    return folded


_THOUGHTS = r"[\w:]{0,20}(?:think|thought|reasoning|monologue)\w{0,20}|reflection|scratchpad|analysis|internal"
_OPEN = re.compile(
    rf"[<\[◁](?:{_THOUGHTS})(?:\s[^<>]{{0,80}})?[>\]▷]|<\|(?!/|end_)(?:{_THOUGHTS})\|>|<unused94>thought"
    r"|<\|channel\|?>(?:analysis|commentary|thought)|^Here is my thought process:",
    re.IGNORECASE | re.MULTILINE,
)
_CLOSE = (
    rf"(?:[<\[◁]/(?:{_THOUGHTS})[>\]▷]|<\|(?:/|end_)(?:{_THOUGHTS})\|>|<unused95>|<channel\|>"
    r"|<\|channel\|>final[^\n{]{0,60}?<\|message\|>|^Here is my response:)"
)
"""The ways in which models mark the begin and the end of reasoning."""
_CLOSED = re.compile(_CLOSE, re.IGNORECASE | re.MULTILINE)
_CLOSED_UNQUOTED = re.compile(rf'(?:[^"]|"[^"\n]*")*?{_CLOSE}', re.IGNORECASE | re.MULTILINE)
_CLOSED_ALONE = re.compile(rf"^{_CLOSE}|{_CLOSE}(?=[ \t*]*(?:$|[{{\[`<\0]))", re.IGNORECASE | re.MULTILINE)
_VERDICT_FIRST = re.compile(r"\W*(?:yes|no|true|false|sim|não|是|否|不)\b[^\n]*\n?", re.IGNORECASE)
_FLAT = re.compile(r"\Aanalysis(?=[A-Z\s]).*assistantfinal", re.DOTALL)
"""Channels whose marks a server has removed."""
_TAGS = (
    "answer|final_answer|final|verdict|judge?ment|score|rating|grade|mark|correctness|result|output|response|solution"
    "|decision|label|choice|winner"
)
_SPECIAL = re.compile(r"<\|[\w/]{1,30}\|>|<｜[^｜<>]{1,40}｜>|</s>|<eos>|<end_of_turn>")
_AROUND = re.compile(
    rf"```\w*[ \t]*\n?(?P<a>(?:(?!```).)*)```|<(?P<tag>{_TAGS})>(?P<b>(?:(?!</(?P=tag)>).)*)</(?P=tag)>"
    rf"|(?P<c>[^<]+)</(?:{_TAGS})>",
    re.DOTALL | re.IGNORECASE,
)
_QUOTED = re.compile(r"```.*?(?:```|\Z)|(?<!\d)\"[^\"]*\"?|“[^”]*”?|`[^`\n]*`|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE)


def masked(text: str) -> str:
    """The text with a sign that says nothing for each one of JSON or a quotation; all of JSON that cannot be read."""
    mask = apart(text)[1]
    is_broken = mask.lstrip("`json \n").startswith("{")
    return re.sub(r"[^\n]", "\0", mask) if is_broken else _QUOTED.sub(lambda m: re.sub(r"[^\n]", "\0", m[0]), mask)


def answer_of(text: str) -> str:
    """The reply without its reasoning and what is wrapped around it; nothing where the reasoning has no end.

    A closing mark alone ends reasoning, too, where it ends or begins a line: with some models the opening one belongs
    to the prompt. What begins as a verdict is no reasoning.
    """
    text = _FLAT.sub("", text.strip("\ufeff\u200b \n\r\t"))
    said, last = "", 0
    for opened in _OPEN.finditer(masked(text)):
        if opened.start() >= last:
            said += text[last : opened.start()]
            inside = text, opened.end()
            if not (closed := _CLOSED_UNQUOTED.match(*inside) or _CLOSED.search(*inside)):
                return ""
            last = closed.end()
    said += text[last:]
    for closed in [*_CLOSED_ALONE.finditer(masked(said))][-1:]:
        claimed = _VERDICT_FIRST.match(said)
        said = (claimed[0] if claimed else "") + said[closed.end() :]
    said = _SPECIAL.sub("", said).strip()
    while around := _AROUND.fullmatch(said):
        said = (around["a"] or around["b"] or around["c"] or "").strip()
    return said


class Claim(NamedTuple):
    """A place of a reply where a verdict stands."""

    text: str
    final: bool = False
    """Whether it says that it is the last word, at the end of the reply."""
    alone: bool = False
    """Whether nothing but a verdict may stand there."""


_MARKED = re.compile(
    rf"<(?P<tag>{_TAGS})>\s*([^<]{{1,300}})(?:</(?P=tag)>|\Z)|\\f?box(?:ed)?\{{((?:[^{{}}]|\{{[^{{}}]*\}}){{1,100}})\}}"
    r"|\[\[\s*([^\W\d_]{1,9})\s*\]\]|\[\s*RESULT\s*\]\s*:?\s*(\(?[-+\w.]+\)?)|^[-*\s]*\[[xX✓✔]\](.+)$",
    re.IGNORECASE | re.MULTILINE,
)
_UNTICKED = re.compile(r"[-*\s]*(?:\[ ?\]|☐|⬜)\s*\w")
_TEX = re.compile(r"\\(?:text\w*|math\w*)\{([^{}]*)\}|\$")
_DECORATION = re.compile(r"[*_`#>\"'“”‘’\[\]{}]+|^\s*[-+•·]\s+")


_SCALE = (
    r"(?:\([^()]{0,30}\)|(?:(?:(?:out|of|on|a|scale|from)\s+){1,5}\d+|\d+\s*(?:-|–|to)\s*\d+)(?:\s*(?:-|–|to)\s*\d+)?)"
)
"""What may stand between a label and its sign: "(1-5)", "out of 5", "on a scale of 1 to 5"."""


@cache
def _label(words: Words) -> re.Pattern[str]:
    names, before, final, copulas, leads = (
        "|".join(map(re.escape, sorted(group, key=len, reverse=True)))
        for group in (words.labels, words.before, words.final, words.copulas, words.leads)
    )
    return re.compile(
        rf"(?:(?P<label>(?:(?:{before}|{names})\s*){{0,3}}?(?:{names})(?:\s+(?:{final}))?)"
        rf"(?:(?!\w)\s*(?:{_SCALE}\s*)?(?P<sign>[:=→?]|-(?=\s)|[–—])|\s*(?:{copulas})(?![^\W\d_]):?)"
        rf"|(?:{leads})(?![^\W\d_])[,:]?)\s*",
        re.IGNORECASE,
    )


def bare(line: str) -> str:
    """The line without what decorates it."""
    return _DECORATION.sub(" ", line).strip()


def is_labelled(line: str, words: Words) -> bool:
    """Whether a line begins with a label ("Verdict:")."""
    head = _label(words).match(bare(line))
    return bool(head and head["label"])


def plain(text: str) -> str:
    """The text with one form for each sign."""
    return unicodedata.normalize("NFKC", text.replace("½", ".5").replace("−", "-"))


def _lines(text: str, words: Words) -> list[str]:
    """The lines of a reply that are not quoted, without decoration; all of them where it is all one quotation.

    What is marked is a labelled line, and so is a row of a table: with its first cell, and with the table's first row.
    """
    label, rows, pending = _label(words), list[list[str]](), ""
    text = _MARKED.sub(r"\nverdict: \2\3\4\5\6\n", _TEX.sub(r"\1", plain(text)))
    text = re.sub(rf"(?<=[.!?…;:,)])\s*(?={label.pattern})", "\n", text, flags=re.IGNORECASE)
    quoted, said = list[str](), list[str]()
    for line, mask in zip(text.split("\n"), masked(text).split("\n"), strict=True):
        if not bare(line) or _UNTICKED.match(line):
            continue
        one = pending + bare(line)
        if not pending and mask.lstrip().startswith("\0"):
            quoted.append(one)
        elif one.startswith("|"):
            rows.append(one.strip("| ").split("|"))
            said += [":".join(rows[-1]), *map(": ".join, zip(rows[0], rows[-1], strict=False))]
        elif label.fullmatch(f"{one.rstrip(':')}:") and one.casefold() not in words.good:
            pending = f"{one.rstrip(':')}: "
        else:
            said.append(one)
            pending = ""
    return said or quoted


def claims(text: str, words: Words) -> Iterator[Claim]:
    """Where a verdict may stand: values of JSON, labelled lines, the first line, the last one."""
    objects, prose = apart(text)
    label = _label(words)
    for value in (f"{key.replace('_', ' ')}: {value}" for one in objects for key, value in unwrapped(one, ()).items()):
        if head := label.match(value):
            yield Claim(value[head.end() :])
    lines = _lines(prose, words)
    is_list = {"1.", "2."} <= {line[:2] for line in lines}
    for number, line in enumerate(lines):
        head, rest, at_end = None, line, number == len(lines) - 1
        while one := label.match(rest):
            head, rest = one, rest[one.end() :]
        name = ((head and head["label"]) or "").casefold()
        final = any(word in line[: -len(rest) or None].casefold() for word in words.final)
        if head and (not number or at_end or final or (name and not name.endswith(words.weak))):
            yield Claim(rest, final and at_end, alone=not head["sign"])
        elif (at_end and number) or not (number or is_list):
            yield Claim(line, alone=number > 0)
            yield Claim(re.split(r"(?<=[.!])\s+", line)[-1], alone=True)


@cache
def of_quality(words: Words) -> Words:
    """The words where a yes says that something is as it should be: "Supported:" and its kind are labels, too."""
    return words.model_copy(
        update={"labels": (*words.labels, *(one for one in words.good if one[1:] and one.isalpha()))}
    )


def preferred(text: str, words: Words, read: Callable[[Claim], Value | None]) -> Value | None:
    """What the reply claims: the last word on its last line, else what all claims say; None where there is none.

    Raises `Unreadable` for claims that contradict each other.
    """
    said = [(claim.final, value) for claim in claims(text, words) if (value := read(claim)) is not None]
    values = {value for final, value in said if final} or {value for _, value in said}
    if len(values) > 1:
        raise Unreadable(f"two verdicts: {excerpt(text)!r}")
    return next(iter(values), None)
