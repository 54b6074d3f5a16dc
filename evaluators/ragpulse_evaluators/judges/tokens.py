"""Takes a judge's reply apart: what is reasoning, what is JSON, and what the words claim.

Marks (`<think>`, `<answer>`, labels) count outside JSON and quotations only: a quoted verdict is not the judge's.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, NoReturn, TypeVar

from ragpulse_evaluators.errors import ConfigurationError, Unreadable, excerpt
from ragpulse_evaluators.judges.replies import Fields, JsonObject

Value = TypeVar("Value")
LANGUAGES = ("en", "zh", "pt")


@dataclass(frozen=True, kw_only=True)
class Words:
    """A language's words for yes, no, a tie, nothing, and its labels before a verdict; stored beside the prompts."""

    language: str
    yes: frozenset[str]
    no: frozenset[str]
    good: frozenset[str]
    """By themselves, a yes to whether something is as it should be."""
    bad: frozenset[str]
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
    raw = json.loads(path.read_text(encoding="utf-8"))
    sets = ("yes", "no", "good", "bad", "tie", "none")
    kinds = {key: frozenset if key in sets else tuple for key, value in raw.items() if isinstance(value, list)}
    return Words(**raw | {key: kind(raw[key]) for key, kind in kinds.items()})


_DEEPEST, _MOST_TRIES, _LONGEST = 64, 64, 200_000
"""Levels of an object, braces tried that begin none, and characters of one that is no strict JSON."""
_PIECE = re.compile(
    r'"(?:[^"\\]|\\.|"(?!\s*(?:[,:}\]#|]|//|/\*|$)))*+"?'
    r"|'(?:[^'\\]|\\.|'(?!\s*(?:[,:}\]#|]|//|/\*|$)))*+'?|[“”](?:[^”\\]|\\.)*+”?"
    r"|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|(?<!\S)\#[^\n]*|[{}\[\],:]"
    r"|(?:(?!//|/\*)[^\s{}\[\],:\"'“”]|(?<=\w)'(?=\w))+(?:[ \t]+(?!//|/\*|\#)(?:[^\s{}\[\],:\"'“”]|(?<=\w)'(?=\w))+)*+",
    re.DOTALL,
)
"""The tokens of an object that is no strict JSON: strings, comments, marks, bare words. A quote that nothing of JSON
follows belongs to the text."""
_ESCAPE = re.compile(r'\\(.)|"', re.DOTALL)
_LITERALS = {"true": "true", "false": "false", "null": "null", "none": "null", "nan": "NaN", "infinity": "NaN"}
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def folded_key(key: str) -> str:
    """A key without regard to case, spaces and hyphens."""
    return key.strip().casefold().replace(" ", "_").replace("-", "_")


def _agreeing(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object in which no key has two values."""
    seen: JsonObject = {}
    for key, value in pairs:
        if seen.setdefault(folded_key(key), value) != value:
            raise ValueError(f"two values of {key}")
    return dict(pairs)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, strict=False, object_pairs_hook=_agreeing)


def apart(text: str) -> tuple[list[JsonObject], str]:
    """The JSON objects of a text that are not empty, without those within others; and the text with blanks for them.

    Comments, bare words, single quotes, a trailing comma, line breaks within strings, quotes that are not escaped and
    Python's True, False and None are accepted. Two values of one key are not.
    """
    objects: list[JsonObject] = []
    pieces, last, tries, position = [], 0, 0, text.find("{")
    while position >= 0 and tries < _MOST_TRIES:
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = _lenient(text, position)
        if value:
            objects.append(value)
            pieces += [text[last:position], " " * (end - position)]
            last = end
        tries += not value
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
        return f'"{_ESCAPE.sub(_escaped, word[1:-1])}"'
    if word in "{}[],:" or _PLAIN_NUMBER.fullmatch(word):
        return word
    is_comment = word[0] == "#" or word[:2] in ("//", "/*")
    return "" if is_comment else _LITERALS.get(word.casefold()) or json.dumps(word)


def _escaped(match: re.Match[str]) -> str:
    kept = match[1] and match[1] in '"\\/bfnrtu'
    return match[0] if kept else "'" if match[1] == "'" else f"\\{match[0]}"


def is_json(text: str) -> bool:
    """Whether a reply is meant as JSON: it holds an object, or begins as one (whose end may be missing)."""
    return text.lstrip("`json \n").startswith("{") or bool(apart(text)[0])


def unwrapped(reply: Fields, keys: Collection[str]) -> JsonObject:
    """The reply with folded keys; an object under the only key of another ("result", "evaluation") is read itself."""
    folded = {folded_key(key): value for key, value in reply.items()}
    while len(folded) == 1 and isinstance(inner := next(iter(folded.values())), dict):
        within = {folded_key(key): value for key, value in inner.items()}
        if folded.keys() & set(keys) and not within.keys() & set(keys):
            break
        folded = within
    return folded


_THOUGHTS = "think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|inner_monologue|seed:think"
_MARK = re.compile(
    rf"(?P<open>[<\[◁](?:{_THOUGHTS})[>\]▷]|<\|(?:begin_of_thought|START_THINKING|think)\|>|<unused94>thought"
    r"|<\|channel\|?>(?:analysis|commentary|thought)|^Here is my thought process:)"
    rf"|(?P<close>[<\[◁]/(?:{_THOUGHTS})[>\]▷]|<\|(?:end_of_thought|END_THINKING|/think)\|>|<unused95>|<channel\|>"
    r"|<\|channel\|>final[^\n{]{0,60}?<\|message\|>|^Here is my response:)"
    r"|(?P<fence>^[ \t]*```)|(?P<quote>(?<!\d)\"|[`“”])",
    re.IGNORECASE | re.MULTILINE,
)
"""The ways in which models mark reasoning, and what quotes."""
_ENDS_LINE = re.compile(r"[ \t*]*(?:$|[{\[`<])", re.MULTILINE)
_VERDICT_FIRST = re.compile(r"\W*(?:yes|no|true|false|sim|não|是|否|不)\b[^\n]*\n?", re.IGNORECASE)
_FLAT = re.compile(r"\Aanalysis(?=[A-Z\s]).*assistantfinal", re.DOTALL)
"""Channels whose marks a server has removed."""
_TAGS = "answer|final_answer|final|verdict|score|rating|result|output|response|solution|decision|label|choice|winner"
_SPECIAL = re.compile(r"<\|[\w/]{1,30}\|>|<｜[^｜<>]{1,40}｜>|</s>|<eos>|<end_of_turn>")
_AROUND = re.compile(
    rf"```\w*[ \t]*\n?(?P<a>(?:(?!```).)*)```|<(?P<tag>{_TAGS})>(?P<b>(?:(?!</(?P=tag)>).)*)</(?P=tag)>",
    re.DOTALL | re.IGNORECASE,
)


def answer_of(text: str) -> str:
    """The reply without its reasoning and what is wrapped around it; nothing where the reasoning has no end.

    A closing mark alone ends reasoning, too, where it ends or begins a line: with some models the opening one belongs
    to the prompt. What begins as a verdict is no reasoning.
    """
    text = _FLAT.sub("", text.strip("\ufeff\u200b \n\r\t"))
    masked = apart(text)[1]
    kept, last, is_open, quoted = list[str](), 0, False, False
    fenced = masked.lstrip("`json \n").startswith("{")  # an object that cannot be read: all of it is quoted
    for mark in _MARK.finditer(masked):
        kind, start = mark.lastgroup, mark.start()
        if is_open:
            if kind == "close":
                last, is_open = mark.end(), False
        elif kind == "quote":
            quoted = mark[0] == "“" or (mark[0] != "”" and not quoted)
        elif kind == "fence":
            fenced = not fenced
        elif quoted or fenced:
            continue
        elif kind == "open":
            kept.append(text[last:start])
            is_open = True
        elif start == last or text[start - 1] == "\n" or _ENDS_LINE.match(text, mark.end()):
            claimed = _VERDICT_FIRST.match(text, last, start)
            kept, last = [claimed[0]] if claimed else [], mark.end()
    said = "" if is_open else _SPECIAL.sub("", "".join((*kept, text[last:]))).strip()
    while around := _AROUND.fullmatch(said):
        said = (around["a"] or around["b"] or "").strip()
    return said


class Claim(NamedTuple):
    """A place of a reply where a verdict stands."""

    text: str
    final: bool = False
    """Whether it says that it is the last word, at the end of the reply."""
    alone: bool = False
    """Whether nothing but a verdict may stand there."""


_TAGGED = re.compile(
    rf"<(?P<tag>{_TAGS})>([^<]{{1,300}})</(?P=tag)>|\\boxed\{{((?:[^{{}}]|\{{[^{{}}]*\}}){{1,100}})\}}"
    r"|\[\[\s*([^\W\d_]{1,9})\s*\]\]|\[\s*RESULT\s*\]\s*(\(?[-+\w.]+\)?)",
    re.IGNORECASE,
)
_TEX = re.compile(r"\\(?:text\w*|math\w*)\{([^{}]*)\}|\$")
_QUOTE = re.compile(r"(?<!\d)\"|[“”]")
_DECORATION = re.compile(r"[*_`#>\"'“”‘’\[\]{}]+|^\s*[-+•·]\s+", re.MULTILINE)


@cache
def _label(words: Words) -> re.Pattern[str]:
    names, before, final, copulas = (
        "|".join(map(re.escape, sorted(group, key=len, reverse=True)))
        for group in (words.labels, words.before, words.final, words.copulas)
    )
    return re.compile(
        rf"(?:(?P<label>(?:(?:{before}|{names})\s*){{0,3}}?(?:{names})(?:\s+(?:{final}))?)"
        rf"(?:(?!\w)\s*(?:\([^()]{{0,30}}\)\s*)?(?P<sign>[:=]|-(?=\s)|[–—])|\s*(?:{copulas})(?![^\W\d_]):?)"
        rf"|(?:{'|'.join(words.leads)})(?![^\W\d_])[,:]?)\s*",
        re.IGNORECASE,
    )


def labelled(line: str, words: Words) -> str | None:
    """The label that a line begins with ("Verdict:"); empty for a word such as "therefore", None for no label."""
    head = _label(words).match(_DECORATION.sub(" ", line).strip())
    return None if head is None else head["label"] or ""


def beside(text: str, words: Words) -> str:
    """The labelled lines beside the JSON of a reply."""
    return "\n".join(line for line in apart(text)[1].splitlines() if labelled(line, words))


def plain(text: str) -> str:
    """The text with one form for each sign."""
    return unicodedata.normalize("NFKC", text.replace("½", ".5"))


def _rows(line: str, header: list[str]) -> list[str]:
    """The cells of a table's row: each after the name of its column, the second after the first."""
    cells = [cell.strip() for cell in line.strip(" |").split("|")]
    if not all(re.fullmatch(":?-+:?", cell) for cell in cells):
        named = [f"{name}: {cell}" for name, cell in zip(header, cells, strict=False)]
        header[:] = header or cells
        return [*named, ": ".join(cells[:2])]
    return []


def _lines(text: str, words: Words) -> list[str]:
    """The lines of a reply that are not quoted, as plain text; all of them where it is all one quotation."""
    label = _label(words).pattern
    text = re.sub(rf"(?<=[.!?…;,)])\s*(?={label})", "\n", plain(text), flags=re.IGNORECASE)
    outside, inside = list[str](), list[str]()
    quoted, fenced, pending, header = False, False, "", list[str]()
    for line in text.splitlines():
        starts_quoted, quoted = quoted, quoted != bool(len(_QUOTE.findall(line)) % 2)
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not (bare := _DECORATION.sub(" ", line).strip()):
            continue
        elif line.lstrip().startswith("|"):
            outside += _rows(bare, header)
        elif _label(words).fullmatch(f"{bare.rstrip(':')}:"):
            pending = f"{bare.rstrip(':')}: "
        else:
            is_quoted = not pending and (fenced or starts_quoted or line.lstrip().startswith(">"))
            (inside if is_quoted else outside).append(pending + bare)
            pending = ""
    return outside or inside


def claims(text: str, words: Words) -> Iterator[Claim]:
    """Where a verdict may stand: values of JSON, marked texts, labelled lines, the first line, the last one."""
    objects, rest = apart(text)
    marked = list[str]()

    def take(match: re.Match[str]) -> str:
        if match.string.count('"', 0, match.start()) % 2:  # within a quotation
            return match[0]
        marked.append(next(filter(None, match.groups()[1:])))
        return "\n"

    rest = _TAGGED.sub(take, _TEX.sub(r"\1", rest), count=50)
    values = [f"{key.replace('_', ' ')}: {value}" for one in objects for key, value in unwrapped(one, ()).items()]
    yield from (Claim(value[head.end() :]) for value in values if (head := _label(words).match(value)))
    yield from (Claim(_DECORATION.sub(" ", plain(one)).strip()) for one in marked)
    lines = _lines(rest, words)
    listed = {line.split(".")[0] for line in lines if re.match(r"\d+\. ", line)}
    for number, line in enumerate(lines):
        head, at_end = _label(words).match(line), number == len(lines) - 1
        label = ((head and head["label"]) or "").casefold()
        final = any(word in label for word in words.final)
        if head and (not number or at_end or (label and (final or not label.endswith(words.weak)))):
            yield Claim(line[head.end() :], final and at_end, alone=not head["sign"])
        elif (not number and not {"1", "2"} <= listed) or (at_end and number):
            yield Claim(line, alone=number > 0)


def preferred(text: str, words: Words, read: Callable[[Claim], Value | None]) -> Value | None:
    """What the reply claims: the last word on its last line, else what all claims say; None where there is none.

    Raises `Unreadable` for claims that contradict each other.
    """
    said = list(claims(text, words))
    for final in (True, False):
        values = {value for claim in said if claim.final == final and (value := read(claim)) is not None}
        if len(values) > 1:
            raise Unreadable(f"two verdicts: {excerpt(text)!r}")
        if values:
            return values.pop()
    return None
