"""Reads what a judge's reply says: a yes or no, a number, a label; by the claims that `tokens` finds in it.

A reply that cannot be read raises `Unreadable`. "No, yesterday it was different" is a no, "It is untrue" is nothing at
all, and two contradicting verdicts are nothing, unless one says that it is final.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from ragpulse_evaluators.errors import NoVerdict, Unreadable, excerpt, unreadable
from ragpulse_evaluators.judges.replies import LONG, MOST_SIGNS, NESTED, JsonObject, end_of, is_nested
from ragpulse_evaluators.judges.tokens import (
    Claim,
    Words,
    answer_of,
    apart,
    claims,
    masked,
    of_quality,
    plain,
    preferred,
)
from ragpulse_evaluators.result import JudgeCall


def read_json(text: str) -> JsonObject:
    """The one JSON object of the reply, fenced or bare; several that differ are unreadable."""
    objects = apart(text)[0]
    if not objects or any(value != objects[0] for value in objects):
        unreadable("one JSON object", text)
    return objects[0]


_CLAUSE_END = re.compile(r"[.,;:!?\n。、，；：！？…—–]|\s(?:-|because|since)\s")
_TOKEN = re.compile(r"[^\W\d_]+(?:/[^\W\d_]+)?|[\u2600-\u27bf\U0001f300-\U0001faff]")


def _verdict_of(claim: Claim, *, words: Words, as_it_should: bool) -> bool | None:
    yes, no = (words.yes | words.good, words.no | words.bad) if as_it_should else (words.yes, words.no)
    clause, _, rest = _CLAUSE_END.sub("\n", claim.text.strip(" ()").casefold(), count=1).partition("\n")
    first, *others = _TOKEN.findall(clause) or [""]
    if claim.alone and re.search(r"\w", rest):
        return None
    if claim.text.strip(" ()").startswith("?", len(clause)):
        return None
    if clause.strip(" ()") in yes | no and not claim.text.startswith(":", len(clause)):
        return clause.strip(" ()") in yes
    is_sign = first in yes | no and not first.isalnum()
    is_word = first in words.yes | words.no and (
        first not in words.alone or first.upper() in claim.text or not words.after.isdisjoint(others[:1])
    )
    if claim.alone or {*others[:1]} & {*words.labels} or not (is_sign or is_word):
        return None
    return None if (no if first in yes else yes).intersection(others) else first in yes


def read_verdict(text: str, words: Words, *, as_it_should: bool = False) -> bool:
    """A yes or a no: the first word of the reply, or the word after a label.

    Where a yes says that something is as it should be, "pass", "not supported" and signs are read, too.
    """
    read = partial(_verdict_of, words=words, as_it_should=as_it_should)
    verdict = preferred(text, of_quality(words) if as_it_should else words, read)
    if verdict is None:
        unreadable("yes or no", text)
    return verdict


def read_verdicts(text: str, count: int, words: Words) -> list[bool]:
    """`count` verdicts from a last line such as "Final verdict for each statement in order: Yes. No."."""
    tail = plain(text).strip(" \n*`").rpartition("\n")[2].rpartition(":")[2]
    tokens = [token.casefold() for token in _TOKEN.findall(tail)]
    if not tokens or any(token not in words.yes | words.no for token in tokens):
        unreadable("a final line of verdicts", text)
    if len(tokens) != count:
        raise Unreadable(f"{count} statements but {len(tokens)} verdicts: {excerpt(text)!r}")
    return [token in words.yes for token in tokens]


_NUMBER = r"[-+]?(?:\d+(?:\.\d+|,\d{1,2}(?!\d))?|\.\d+)"
_OUT_OF = r"(?:/|out\s+of|of|de|分\s*/)\s*(\d+(?:\.\d+)?)"
_WHOLE = re.compile(
    rf"({_NUMBER})\s*(?:points?|stars?|[★⭐])?\s*(?:{_OUT_OF})?"
    r"\s*(points?|pontos?|stars?|estrelas?|percent|por cento|[%分星颗★⭐]+)?"
    rf"(?:\s*\(\s*(?:out of|of|max\w*|满分|/)\s*(\d+(?:\.\d+)?)|[.;:)](?!\d)|,(?!\s*\d)|\s*\(|\s+[-–—=](?!\s*\d)|\s*$)",
    re.IGNORECASE,
)
_STARS = re.compile(r"(?<!\d)(?<!\d )((?:[★⭐🌟✮]\ufe0f?\s?)+)([☆✩\s]*)(\.5)?")
_WORDED = re.compile(
    r"(?:(?<!maximum )(?<!max )(?<!minimum )(?<!possible )(?<!highest )(?<!lowest )\b"
    r"(?:scores?|scored|rat(?:e|es|ed|ing)|marks?|grade[sd]?|g[ia]ve|gives?|giving|assign(?:ed|s)?|award(?:ed|s)?"
    r"|deserves?|earns?|say|nota|dou|atribuo)\b|评分|得分|打分|分数|给)([^\d\n]{0,40}?)"
    rf"({_NUMBER})\s*(?:{_OUT_OF})?\s*([%分])?(?!\s*[,;:]\s*\d)",
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
    r"\b(?:not|never|no|out|between|from|scale|range|above|below|over|under|least|most|more|less|than|higher|lower|não)\b"
    r"|n['’]t\b|不|[.!?]\s|[<>≤≥]",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"\s*(?:[-–—~]|to\b|or\b|and\b|a\b|ou\b|até\b|至|到)\s*\d|\s*(?:→|[-=]>)|[.,]?\d"
    r"|\s*(?!(?:points|stars|pontos)\b)[a-z]{4,}s\b"
)
"""After a number that is no mark: the rest of a range or of a decimal, or what it counts."""


@cache
def _numeral(words: Words) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W\d_])({'|'.join(words.numbers)})(?![^\W\d_分星颗])", re.IGNORECASE)


def _stars(match: re.Match[str]) -> str:
    filled, empty = (len(re.findall(r"[^\s\ufe0f]", match[group])) for group in (1, 2))
    return f"{filled}{match[3] or ''}{f'/{filled + empty + bool(match[3])}' if empty else ''} "


def _mark_of(claim: Claim, *, words: Words, lo: float, hi: float) -> float | None:
    text = _STARS.sub(
        _stars, _numeral(words).sub(lambda one: str(words.numbers.index(one[0].casefold())), claim.text.lstrip(" (~≈"))
    )
    if not (whole := _WHOLE.match(text)):
        return None
    rest = text[whole.end() :].partition(")")[2] if "(" in whole[0] else text[whole.end() :]
    if claim.alone and re.search(r"\w", rest):
        return None
    number, out_of, unit, remark = whole.groups()
    if (lo, hi) == (0, 1) and (out_of or remark):
        return _number(number) / float(out_of or remark)
    return _within(_scaled(hi, number, out_of or remark, unit), lo, hi)


def read_number(text: str, words: Words, *, lo: float, hi: float) -> float:
    """A number in lo..hi: alone on the first or last line, after a label, as stars, or a mark in prose."""
    mark = preferred(text, words, partial(_mark_of, words=words, lo=lo, hi=hi))
    if mark is not None:
        return _within(mark, lo, hi)
    lines = [line for line in masked(plain(text)).replace("\0", " ").splitlines() if line.strip()]
    marks = {mark for line in (*lines[:1], *lines[-1:]) for mark in _marks(line, hi)}
    if len(marks) == 1:
        return _within(marks.pop(), lo, hi)
    unreadable(f"a number in {lo:g}..{hi:g}", text)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _marks(line: str, hi: float) -> Iterator[float]:
    """The marks that a sentence gives: "the score is 4 out of 5"; never a range, a count or a denial."""
    said = re.sub(r"[*_`()]+", " ", line)
    for pattern in (_WORDED, _FRACTION):
        for match in pattern.finditer(said):
            between, number, out_of, unit = match.groups()
            if not _NO_MARK.search(between) and not _RANGE.match(said, match.end()):
                yield _scaled(hi, number, out_of, unit)


def _scaled(hi: float, number: str, out_of: str | None, unit: str | None) -> float:
    """A number as it is given; a share of 1 may be given in percent."""
    of = "100" if unit in ("%", "percent", "por cento") else out_of
    if of == "100" and hi == 1:
        return _number(number) / 100
    if of is not None and float(of) != hi:
        raise Unreadable(f"{number!r} is out of {of}, expected out of {hi:g}")
    return _number(number)


def _within(value: float, lo: float, hi: float) -> float:
    if not lo <= value <= hi:
        raise Unreadable(f"{value:g} is outside {lo:g}..{hi:g}")
    return value


def read_label(text: str, labels: Iterable[str], words: Words) -> str:
    """One of `labels`: on the first line, after a label, `[[X]]` or `[RESULT] X`."""
    by_folded = {label.casefold(): label for label in labels}

    def label_of(claim: Claim) -> str | None:
        return by_folded.get(_CLAUSE_END.split(claim.text, maxsplit=1)[0].strip(" ()").casefold())

    return preferred(text, words, label_of) or unreadable("one of " + ", ".join(by_folded.values()), text)


def not_applicable(text: str, words: Words) -> bool:
    """Whether a reply says "N/A" or null in place of a verdict: by itself or as a value of its object."""
    return any(is_nothing(claim.text, words.none) for claim in claims(text, words))


def is_nothing(value: Any, none: Collection[str]) -> bool:
    """Whether a value is null or one of the words for it."""
    return value is None or (isinstance(value, str) and value.strip(" .").casefold() in none)


_REFUSAL = re.compile(
    r"\W*(?:(?:i'?m|i am) (?:very |so )?sorry|sorry,|i (?:can'?t|cannot|can not|won'?t|am unable|am not able)"
    r"|抱歉|对不起|很抱歉|我(?:无法|不能)|desculpe|sinto muito|não posso)",
    re.IGNORECASE,
)
_ENDED = {
    "content_filter": "a content filter of the provider withheld the reply",
    "refusal": "the judge refused to judge",
}


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
    text = answer_of(call.completion)
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
