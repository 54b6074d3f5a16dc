"""Reads a judge's reply: JSON or nearly JSON under the keys that were asked for, else by token, never by substring.

A reply that cannot be read raises `Unreadable`. "No, yesterday it was different" is a no, "It is untrue" is nothing at
all, and two contradicting verdicts are nothing.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ragpulse_evaluators.errors import ConfigurationError, NoVerdict, Unreadable, excerpt, first_problem, unreadable
from ragpulse_evaluators.judges.replies import LONG, MOST_SIGNS, NESTED, Fields, JsonObject, end_of, is_nested
from ragpulse_evaluators.result import JudgeCall

Model = TypeVar("Model", bound=BaseModel)
_MAX_BRACES = 64
"""Braces tried that begin no object, so that a tower of them costs nothing."""
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}]|[A-Za-z]+', re.DOTALL)
"""The tokens of an object that is no strict JSON: strings, braces, bare words."""
_LITERALS = {"true": "True", "false": "False", "null": "None", "nan": "", "infinity": ""}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def json_objects(text: str) -> list[JsonObject]:
    """Every JSON object in the text that is not empty, in order; objects within objects are not listed again.

    A trailing comma, single quotes, line breaks within strings and Python's True, False and None are accepted.
    """
    decoder = json.JSONDecoder(parse_constant=_no_constant, strict=False)
    objects: list[JsonObject] = []
    position, tries = text.find("{"), 0
    while position >= 0 and tries < _MAX_BRACES:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = _lenient(text, position)
        objects += [value] if value else []
        tries += not value
        position = text.find("{", end)
    return objects


def _lenient(text: str, start: int) -> tuple[JsonObject | None, int]:
    """The object that begins at `start` read as a Python literal, and its end; None where it is none either."""
    pieces, depth, last = [], 0, start
    for piece in _PIECE.finditer(text, start):
        word = piece[0]
        depth += {"{": 1, "}": -1}.get(word, 0)
        if depth > _MAX_BRACES:
            break
        pieces += [text[last : piece.start()], _as_python(word)]
        last = piece.end()
        if depth == 0:
            return _literal("".join(pieces)), last
    return None, start + 1


def _as_python(word: str) -> str:
    return word.replace("\n", "\\n").replace("\r", "") if word[0] in "\"'" else _LITERALS.get(word.casefold(), word)


def _literal(text: str) -> JsonObject | None:
    try:
        value = ast.literal_eval(text)
        return json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, dict) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def is_json(text: str) -> bool:
    """Whether a reply is meant as JSON: it holds an object, or begins as one (whose end may be missing)."""
    return text.lstrip("`json \n").startswith("{") or bool(json_objects(text))


def read_json(text: str) -> JsonObject:
    """The one JSON object of the reply, fenced or bare; several that differ are unreadable."""
    objects = json_objects(text)
    if not objects or any(value != objects[0] for value in objects):
        unreadable("one JSON object", text)
    return objects[0]


def folded_key(key: str) -> str:
    """A key without regard to case, spaces and hyphens."""
    return key.strip().casefold().replace(" ", "_").replace("-", "_")


def unwrapped(reply: Fields, keys: Collection[str]) -> JsonObject:
    """The reply with folded keys; an object under the only key of another ("result", "evaluation") is read itself."""
    folded = {folded_key(key): value for key, value in reply.items()}
    while len(folded) == 1 and isinstance(inner := next(iter(folded.values())), dict):
        within = {folded_key(key): value for key, value in inner.items()}
        if folded.keys() & set(keys) and not within.keys() & set(keys):
            break
        folded = within
    return folded


def read_model(text: str, schema: type[Model]) -> Model:
    """The reply's JSON object as `schema`; raises `Unreadable` naming the first wrong field."""
    try:
        return schema.model_validate(read_json(text))
    except ValidationError as error:
        raise Unreadable(first_problem(error)) from None


LANGUAGES = ("en", "zh", "pt")


@dataclass(frozen=True, kw_only=True)
class Words:
    """A language's words for yes, no, a tie, nothing, and its labels before a verdict; stored beside the prompts."""

    language: str
    yes: frozenset[str]
    no: frozenset[str]
    tie: frozenset[str]
    none: frozenset[str]
    labels: tuple[str, ...]
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
    sets = {key: frozenset(raw.pop(key)) for key in ("yes", "no", "tie", "none")}
    return Words(**raw | sets | {"labels": tuple(sorted(raw["labels"], key=len, reverse=True))})


_DECORATION = re.compile(r"[*_`#>\"'“”‘’\[\](){}]+")
_CLAUSE_END = re.compile(r"[.,;:!?\n。、，；：！？…—–]|\s-\s")
_TOKEN = re.compile(r"[^\W\d_]+(?:/[^\W\d_]+)?")


def _lines(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text)
    return [line.strip() for line in plain.splitlines() if line.strip(" \t*_-#`>")]


def _unlabelled(line: str, words: Words) -> tuple[str, bool]:
    """The line without its leading label ("Answer:", "答案:"), and whether it had one."""
    bare = _DECORATION.sub(" ", line).strip()
    head = _label_pattern(words.labels).match(bare)
    return (bare[head.end() :].strip(), True) if head else (bare, False)


def _ends(text: str, words: Words) -> Iterator[tuple[str, bool, bool]]:
    """The first line and the last one without labels, whether each had one, and whether it is the first."""
    lines = _lines(text)
    for line in dict.fromkeys((*lines[:1], *lines[-1:])):
        yield (*_unlabelled(line, words), line == lines[0])


def is_labelled(line: str, words: Words) -> bool:
    """Whether a line begins with a label ("Verdict:")."""
    return _unlabelled(line, words)[1]


@cache
def _label_pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(map(re.escape, labels))})\s*[:=]\s*", re.IGNORECASE)


def _verdict_of_clause(text: str, words: Words) -> bool | None:
    clause = _CLAUSE_END.split(text.strip(), maxsplit=1)[0]
    tokens = [token.casefold() for token in _TOKEN.findall(clause)]
    if not tokens or tokens[0] not in words.yes | words.no:
        return None
    verdict = tokens[0] in words.yes
    opposite = words.no if verdict else words.yes
    return None if opposite.intersection(tokens[1:]) else verdict


def read_verdict(text: str, words: Words) -> bool:
    """A yes or a no: the first word of the reply, or the word after a label on its last line."""
    verdicts = {
        _verdict_of_clause(bare, words)
        for bare, labelled, is_first in _ends(text, words)
        if labelled or is_first or len(_TOKEN.findall(bare)) == 1
    } - {None}
    if len(verdicts) != 1:
        unreadable("yes or no", text)
    return verdicts == {True}


def read_verdicts(text: str, count: int, words: Words) -> list[bool]:
    """`count` verdicts from a last line such as "Final verdict for each statement in order: Yes. No."."""
    lines = _lines(text)
    tail = lines[-1].rpartition(":")[2] if lines else ""
    tokens = [token.casefold() for token in _TOKEN.findall(tail)]
    if not tokens or any(token not in words.yes | words.no for token in tokens):
        unreadable("a final line of verdicts", text)
    if len(tokens) != count:
        raise Unreadable(f"{count} statements but {len(tokens)} verdicts: {excerpt(text)!r}")
    return [token in words.yes for token in tokens]


_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_OUT_OF = r"(?:/|out\s+of|of|de|分\s*/)\s*(\d+(?:\.\d+)?)"
_WHOLE = re.compile(rf"({_NUMBER})\s*(?:{_OUT_OF})?\s*(points?|pontos?|[%分])?(?:[.,;:)](?!\d)|\s+[-–—]|\s*$)")
_REMARKED = re.compile(rf"[*_`\s]*({_NUMBER})[*_`]*\s*\((?!\s*{_NUMBER}\s*[-–—/])")
"""A number before a remark in brackets: "4 (good)"."""
_WORDED = re.compile(
    r"(?:\b(?:scores?|scored|rat(?:e|es|ed|ing)|marks?|grade[sd]?|g[ia]ve|gives?|giving|assign(?:ed|s)?|award(?:ed|s)?"
    r"|deserves?|earns?|say|nota|dou|atribuo)\b|评分|得分|打分|分数|给)([^\d\n]{0,40}?)"
    rf"({_NUMBER})\s*(?:{_OUT_OF})?\s*([%分])?",
    re.IGNORECASE,
)
"""A mark in prose: "I'd give it a 4". What stands between the word and the number is looked at."""
_FRACTION = re.compile(
    rf"(?<![\d.,/])()({_NUMBER})\s*(?:/|out\s+of)\s*(\d+(?:\.\d+)?)()"
    r"(?=\s*(?:$|[.,;:!?](?!\d)|points?\b|stars?\b|because\b|since\b|as\b|for\b|on\b))",
    re.IGNORECASE,
)
"""A mark out of the highest one, wherever it stands."""
_NO_MARK = re.compile(
    r"\b(?:not|never|no|between|from|scale|range|above|below|over|under|least|most|more|less|than|higher|lower|não)\b"
    r"|n['’]t\b|不|[.!?]\s",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"\s*(?:[-–—~]|to\b|or\b|and\b|a\b|ou\b|até\b|至|到)\s*\d|[.,]?\d|\s*(?!(?:points|stars|pontos)\b)[a-z]{4,}s\b"
)
"""After a number that is no mark: the rest of a range or of a decimal, or what it counts."""
_RESULT = re.compile(rf"\[\s*RESULT\s*\]\s*\(?\s*({_NUMBER}|[A-Za-z]+)", re.IGNORECASE)


def read_number(text: str, words: Words, *, lo: float, hi: float) -> float:
    """A number in lo..hi: alone on the first line, after a label on the last, after `[RESULT]`, or a mark in prose."""
    result = _RESULT.findall(text)
    if result:
        return _within(_as_number(result[-1], text), lo, hi)
    for bare, labelled, is_first in _ends(text, words):
        if (number := _WHOLE.match(bare)) and (labelled or is_first):
            return _within(_scaled(hi, *number.groups()), lo, hi)
    lines = _lines(text)
    marks = {mark for line in (*lines[:1], *lines[-1:]) for mark in _marks(line, hi)}
    if len(marks) == 1:
        return _within(marks.pop(), lo, hi)
    unreadable(f"a number in {lo:g}..{hi:g}", text)


def _marks(line: str, hi: float) -> Iterator[float]:
    """The marks that a sentence gives: "the score is 4 out of 5", "4 (good)"; never a range, a count or a denial."""
    if remarked := _REMARKED.match(line):
        yield float(remarked[1])
    bare = _DECORATION.sub(" ", line)
    for pattern in (_WORDED, _FRACTION):
        for match in pattern.finditer(bare):
            between, number, out_of, unit = match.groups()
            if not _NO_MARK.search(between) and not _RANGE.match(bare, match.end()):
                yield _scaled(hi, number, out_of, unit)


def _as_number(token: str, text: str) -> float:
    try:
        return float(token)
    except ValueError:
        unreadable("a number after [RESULT]", text)


def _scaled(hi: float, number: str, out_of: str | None, unit: str | None) -> float:
    """A number as it is given; a share of 1 may be given in percent."""
    if unit == "%" and hi == 1:
        return float(number) / 100
    if unit == "%" or (out_of is not None and float(out_of) != hi):
        raise Unreadable(f"{number!r} is out of {out_of or 100}, expected out of {hi:g}")
    return float(number)


def _within(value: float, lo: float, hi: float) -> float:
    if not lo <= value <= hi:
        raise Unreadable(f"{value:g} is outside {lo:g}..{hi:g}")
    return value


def read_label(text: str, labels: Iterable[str], words: Words) -> str:
    """One of `labels`: first line, last line after a label, `[[X]]` anywhere once, or `[RESULT] X`."""
    by_folded = {label.casefold(): label for label in labels}
    marks = {mark.casefold() for mark in re.findall(r"\[\[\s*(\w+)\s*\]\]", text) + _RESULT.findall(text)}
    if len(marks) == 1 and (mark := marks.pop()) in by_folded:
        return by_folded[mark]
    for bare, labelled, is_first in _ends(text, words):
        clause = _CLAUSE_END.split(bare, maxsplit=1)[0].strip().casefold()
        if clause in by_folded and (labelled or is_first):
            return by_folded[clause]
    unreadable("one of " + ", ".join(by_folded.values()), text)


_REASONS = frozenset({"reason", "reasoning", "feedback", "justification", "explanation", "comment"})


def not_applicable(text: str, words: Words) -> bool:
    """Whether a reply says "N/A" or null in place of a verdict: by itself or as a value of its object."""
    if text.strip(" .\"'`*\n").casefold() in words.none:
        return True
    first = next(iter(json_objects(text)), {})
    values = [value for key, value in first.items() if folded_key(key) not in _REASONS]
    return any(is_nothing(value, words.none) for value in values)


def is_nothing(value: Any, none: Collection[str]) -> bool:
    """Whether a value is null or one of the words for it."""
    return value is None or (isinstance(value, str) and value.strip(" .").casefold() in none)


_THOUGHT = re.compile(r"[<\[](think|thinking|thought|reasoning)[>\]].*?[<\[]/\1[>\]]", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r".*[<\[]/(?:think|thinking|thought|reasoning)[>\]]", re.DOTALL | re.IGNORECASE)
_THOUGHT_START = re.compile(r"[<\[](?:think|thinking|thought|reasoning)[>\]]", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\W*(?:(?:i'?m|i am) (?:very |so )?sorry|sorry,|i (?:can'?t|cannot|can not|won'?t|am unable|am not able)"
    r"|抱歉|对不起|很抱歉|我(?:无法|不能)|desculpe|sinto muito|não posso)",
    re.IGNORECASE,
)
_ENDED = {
    "content_filter": "a content filter of the provider withheld the reply",
    "refusal": "the judge refused to judge",
}


def without_reasoning(text: str) -> str:
    """The reply without what stands between `<think>` and `</think>`; nothing where the reasoning has no end.

    A closing mark alone ends reasoning too: with some models the opening one belongs to the prompt.
    """
    rest = _THOUGHT_END.sub("", _THOUGHT.sub("", text), count=1)
    return "" if _THOUGHT_START.search(rest) else rest.strip()


def final_text(call: JudgeCall) -> str:
    """The reply without its reasoning; raises `NoVerdict` where it was cut off, filtered, a refusal, or elsewhere."""
    end = end_of(call.finish_reason)
    if end in _ENDED:
        why = repr(excerpt(call.completion)) if call.completion else call.problem
        raise NoVerdict(f"{_ENDED[end]}: {why}" if why else _ENDED[end])
    if end == "cut":
        raise NoVerdict(f"the reply was cut off: {(call.finish_reason or '').removeprefix('cut: ')}")
    if end == "length":
        limit = next((value for key, value in (call.sampling or {}).items() if key.startswith("max_")), "its")
        raise NoVerdict(f"the reply was cut off at the limit of {limit} tokens: raise max_tokens")
    if problem := call.problem or (
        NESTED if is_nested(call.completion) else LONG if len(call.completion) > MOST_SIGNS else None
    ):
        raise NoVerdict(problem)
    text = without_reasoning(call.completion)
    if not text and call.completion.strip():
        raise NoVerdict("the reply ends within its reasoning")
    return text


def refuses(text: str) -> bool:
    """Whether a reply that cannot be read begins as a refusal does."""
    return bool(_REFUSAL.match(text))


def check_count(items: Sequence[Any], verdicts: Sequence[Any], name: str) -> None:
    """Raise `Unreadable` where the judge returned fewer or more verdicts than there are items."""
    if len(items) != len(verdicts):
        raise Unreadable(f"{len(items)} {name} but {len(verdicts)} verdicts")
