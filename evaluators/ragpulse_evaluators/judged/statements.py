"""RAGAS' faithfulness: take the response apart into statements and check each against the contexts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import Reason, YesNo, either
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.parsing import equal_count, excerpt, read_verdicts
from ragpulse_evaluators.result import Outcome

__all__ = ("StatementFaithfulness", "Statements", "check_statements", "split_statements")

_ITEM = re.compile(r"^\s*(?:statement\s*\d+|陈述\s*\d+|afirmação\s*\d+|\d+|[-*•])\s*[.):：、-]?\s+(.+)$", re.IGNORECASE)


class Statements(BaseModel):
    """`{"statements": ["...", "..."]}`."""

    statements: list[str]


class Checked(BaseModel):
    """One statement with its verdict."""

    statement: str = ""
    reason: Reason = ""
    verdict: YesNo


class CheckedStatements(BaseModel):
    """`{"statements": [{"statement": "...", "reason": "...", "verdict": 1}]}`."""

    statements: Annotated[list[Checked], Field(validation_alias=AliasChoices("statements", "verdicts", "NLI"))]


def _listed(text: str) -> Statements:
    """Statements from a numbered or dashed list; free text is not taken for statements."""
    found = [item[1].strip() for line in text.splitlines() if (item := _ITEM.match(line))]
    if not found:
        raise Unreadable(f"expected a list of statements, got {excerpt(text)!r}")
    return Statements(statements=found)


async def split_statements(session: Session, prompt: str) -> list[str]:
    """The statements the judge finds; none is a valid answer."""
    form = '{"statements": ["...", "..."]}'
    found = await session.read(prompt, either(Statements, _listed), form=form, schema=Statements)
    return [statement for statement in found.statements if statement.strip()]


async def check_statements(session: Session, prompt: str, statements: Sequence[str]) -> list[Checked]:
    """A verdict for each statement, in order; fewer or more verdicts than statements are unreadable."""

    def plain(text: str) -> CheckedStatements:
        verdicts = read_verdicts(text, len(statements), session.words)
        return CheckedStatements(statements=[Checked(verdict=verdict) for verdict in verdicts])

    def read(text: str) -> list[Checked]:
        found = either(CheckedStatements, plain)(text).statements
        equal_count(statements, found, "statements")
        return [item.model_copy(update={"statement": s}) for s, item in zip(statements, found, strict=True)]

    form = '{"statements": [{"statement": "...", "reason": "...", "verdict": 1 | 0}]}'
    return await session.read(prompt, read, form=form, schema=CheckedStatements)


def told(checked: Sequence[Checked]) -> str:
    """The unsupported statements with the judge's reasons."""
    missing = [
        f"{item.statement} ({item.reason})" if item.reason else item.statement for item in checked if not item.verdict
    ]
    return "not supported: " + "; ".join(missing) if missing else "every statement is supported"


class StatementFaithfulness(JudgedEvaluator):
    """Which share of the response's statements do the contexts support?"""

    name = "statement_faithfulness"
    needs = frozenset({"response", "contexts"})
    parser: ClassVar[str] = "statements"
    cost_class = "k calls"
    reply_tokens = 400

    async def assess(self, case: Case, session: Session) -> Outcome:
        """Two calls: take apart, check."""
        statements = await split_statements(session, self.render("statements", case, text=case.response or ""))
        if not statements:
            raise Unreadable("the judge found no statements in the response")
        prompt = self.render("check", case, statements=statements, source=case.texts)
        checked = await check_statements(session, prompt, statements)
        parts: dict[str, Any] = {"statements": [item.model_dump() for item in checked]}
        return Outcome(score=fmean(item.verdict for item in checked), explanation=told(checked), parts=parts)

    def calls_for(self, case: Case) -> int:
        """Two."""
        return 2
