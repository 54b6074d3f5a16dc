"""A whole session, turn by turn: does each answer fit, and does it keep in mind what the user said?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

from pydantic import AliasChoices, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.answer import MarkReply
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, Passing, Reason, Reply
from ragpulse_evaluators.result import Outcome


class TurnVerdict(Reply):
    """The verdict on one turn."""

    turn: Annotated[int, Field(validation_alias=AliasChoices("turn", "number"))]
    reason: Reason = ""
    verdict: Passing


class TurnVerdicts(Reply):
    """`{"turns": [{"turn": 1, "reason": "...", "verdict": "YES"}]}`."""

    form = '{"turns": [{"turn": 1, "reason": "...", "verdict": "YES" | "NO"}]}'
    turns: Annotated[list[TurnVerdict], Field(validation_alias=AliasChoices("turns", "verdicts"))]


class _PerTurn(JudgedEvaluator):
    """One call; the share of turns with a yes."""

    needs = frozenset({"query", "response", "history"})
    parser = "turns"
    reply_tokens = 400

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Show the whole session, read a verdict for each turn."""
        turns = [(turn.query or "", turn.response or "") for turn in case.turns]
        prompt = self.render("evaluate", case.model_copy(update={"history": None}), session=turns)
        verdicts = await session.parse(
            prompt, lambda text: _ordered(text, len(turns)), form=TurnVerdicts.form, schema=TurnVerdicts
        )
        failures = [f"[{item.turn}] {item.reason}" for item in verdicts if not item.verdict]
        return Outcome(
            score=fmean(item.verdict for item in verdicts),
            explanation="\n".join(failures) or f"all of {len(turns)} turns",
            parts={"turns": [item.model_dump() for item in verdicts]},
        )


def _ordered(text: str, count: int) -> Sequence[TurnVerdict]:
    """One verdict per turn, in order, matched by the turn's number."""
    verdicts = {item.turn: item for item in TurnVerdicts.of_json(text).turns}
    numbers = range(1, count + 1)
    if missing := [number for number in numbers if number not in verdicts]:
        raise Unreadable(f"no verdict on turn {missing[0]} of {count}")
    return [verdicts[number] for number in numbers]


class ConversationRelevancy(_PerTurn):
    """In which share of a session's turns is the answer relevant to what the user said?"""

    name = "conversation_relevancy"


class KnowledgeRetention(_PerTurn):
    """In which share of a session's turns does the answer keep in mind what the user said before?"""

    name = "knowledge_retention"


class _Marked(JudgedEvaluator):
    """One call over the whole session; one mark from 1 to 5 by anchors."""

    needs = frozenset({"query"})
    parser = "mark"
    scale = Scale(lo=1.0, hi=5.0)
    reply_tokens = 150

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Show the whole session, read the mark."""
        turns = [(turn.query or "", turn.response or "") for turn in case.turns]
        prompt = self.render("evaluate", case.model_copy(update={"history": None}), session=turns)
        mark = await session.reply(prompt, MarkReply)
        return Outcome(score=mark.score, explanation=mark.reason or None)


class GoalCompletion(_Marked):
    """How far did the user get what they wanted from the conversation, 1 to 5?"""

    name = "goal_completion"


class Frustration(_Marked):
    """How frustrated does the user become in the conversation, 1 to 5?"""

    name = "frustration"
    scale = Scale(lo=1.0, hi=5.0, reverse=True)


ENTRIES = (
    judged_entry(ConversationRelevancy, "DeepEval"),
    judged_entry(KnowledgeRetention, "DeepEval"),
    judged_entry(GoalCompletion, "DeepEval ConversationCompleteness"),
    judged_entry(Frustration, "TruLens; LangSmith"),
)
