"""LlamaIndex's pairwise comparison with balanced positions: which of two responses is better?"""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, Unreadable, unreadable
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, Reason, Reply, reasoning_of
from ragpulse_evaluators.judges.parsing import read_label
from ragpulse_evaluators.judges.tokens import Words
from ragpulse_evaluators.result import Outcome

_FIRST, _SECOND, _TIE = 1.0, 0.0, 0.5
_BARE = dict.fromkeys(("1", "a", "first"), _FIRST) | dict.fromkeys(("2", "b", "second"), _SECOND)
_BARE |= dict.fromkeys(("tie", "c", "both"), _TIE)
_NAMED = ("answer", "response", "assistant", "option", "output", "model", "candidate", "回答", "答案", "resposta")
_MARKS = _BARE | {f"{name}{mark}": _BARE[mark] for name in _NAMED for mark in ("1", "2", "a", "b")}
_LABELS = {_FIRST: "A", _SECOND: "B", _TIE: "TIE"}
_NUMBERED = {"first": "1", "second": "2"}
_NAMES = "|".join(_NAMED)
_SPACED = re.compile(
    rf"(?:({_NAMES})[\s_]*|\bthe\s+|\b)\(?([12ab]|first|second)\b\)?(?:\s+(?:{_NAMES}))?"
    r"(?:\s+(?:(?:is|was)\s+(?:the\s+)?(?:better|best|winner|stronger)|wins)\b[^.\n]*)?",
    re.IGNORECASE,
)
_COMPARED = re.compile(rf"(?:{_NAMES}|\b)([12ab])\s*(>+|<+|=)\s*(?:{_NAMES}|\b)([12ab])\b", re.IGNORECASE)
_TWO_MARKS = re.compile(r"\s*(\d+(?:\.\d+)?)[\s,]+(\d+(?:\.\d+)?)\s*")


class Choice(Reply):
    """`{"reason": "...", "winner": "1" | "2" | "TIE"}`; held as 1 (first), 0 (second), 0.5."""

    form = '{"reason": "...", "winner": "1" | "2" | "TIE"}'
    reason: Reason = ""
    winner: Annotated[
        float,
        BeforeValidator(lambda value: _mark(str(value))),
        WithJsonSchema({"type": "string", "enum": ["1", "2", "TIE"]}),
        Field(validation_alias=AliasChoices("winner", "verdict", "choice", "value", "answer")),
    ]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """ "1"/"2"/"TIE" on the first line, `[[A]]`/`[[B]]`/`[[C]]`, `[RESULT] A`, or JudgeLM's two marks ("8 6")."""
        if two := _TWO_MARKS.fullmatch(text.strip().partition("\n")[0]):
            left, right = float(two[1]), float(two[2])
            winner = "1" if left > right else "2" if right > left else "TIE"
        else:
            try:
                named = _SPACED.sub(lambda m: (m[1] or "") + _NUMBERED.get(m[2].casefold(), m[2]), text)
                said = _COMPARED.sub(lambda m: {">": m[1], "<": m[3], "=": "tie"}[m[2][0]], named)
                winner = read_label(said, (*_MARKS, *words.tie), words)
            except Unreadable:
                unreadable("1, 2 or TIE", text)
        return cls(winner="tie" if winner in words.tie else winner, reason=reasoning_of(text, words))


def _mark(text: str) -> float:
    mark = _MARKS.get(re.sub(r"[\s_\[\]]+", "", text).casefold())
    if mark is None:
        raise ValueError(f"{text!r} is none of 1, 2, TIE")
    return mark


class Pairwise(JudgedEvaluator):
    """1 when `response` beats `second_response`, 0 when it loses, 0.5 for a tie; label A, B or TIE.

    With `consensus` both orders are judged: a win and a tie is a win, two verdicts for the same position are a tie.
    Without `second_response` the reference is the rival, as LlamaIndex first had it.
    """

    name = "pairwise"
    needs = frozenset({"query", "response"})
    parser = "choice"
    cost_class = "k calls"

    def __init__(self, *, consensus: bool = True, **options: Any) -> None:
        super().__init__(consensus=consensus, **options)
        self._ask_times(2 if consensus else 1)

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Judge one order, or both and settle."""
        rival, reference = _rival(case)
        orders = [(case.response or "", rival), (rival, case.response or "")][: self.calls]
        prompts = [
            self.render("evaluate", case, answer_1=first, answer_2=second, reference=reference)
            for first, second in orders
        ]
        choices = await session.replies(prompts, Choice)
        first, *flipped = (choice.winner for choice in choices)
        score = first
        parts: dict[str, Any] = {"first": _LABELS[first]}
        if flipped:
            score = _settle(first, flipped[0])
            parts |= {"flipped": _LABELS[1.0 - flipped[0]], "position_bias": first == flipped[0] != _TIE}
        reasons = "\n".join(choice.reason for choice in choices if choice.reason)
        return Outcome(score=score, label=_LABELS[score], explanation=reasons or None, parts=parts)


def _rival(case: Case) -> tuple[str, str]:
    """The second response and the reference to show beside both."""
    if case.second_response is not None:
        return case.second_response, "\n".join(case.references)
    if not case.references:
        raise MissingField("second_response")
    return case.references[0], ""


def _settle(first: float, flipped: float) -> float:
    """Sum the votes for the response over both orders: two or one and a half win, one is a tie."""
    votes = first + (1.0 - flipped)
    return _TIE if votes == 1.0 else _FIRST if votes > 1.0 else _SECOND


ENTRIES = (judged_entry(Pairwise, "LlamaIndex", "consensus=True"),)
