"""Is the response supported by the contexts, as a whole or statement by statement?

`faithfulness` and `relevancy` are LlamaIndex's: one yes or no, refined over as many calls as the contexts need.
`statement_faithfulness` is RAGAS': the response is split into statements, each is checked against the contexts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import Reason, Session, Verdict, YesNo, json_or, verdict_reader
from ragpulse_evaluators.judges.parsing import check_count, excerpt, read_verdicts
from ragpulse_evaluators.judges.tokens import count_tokens, split_text
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

__all__ = (
    "ENTRIES",
    "Faithfulness",
    "Relevancy",
    "StatementFaithfulness",
    "Statements",
    "check_statements",
    "pack",
    "split_statements",
)

_FORM = '{"reason": "...", "verdict": "YES" | "NO"}'


def pack(texts: Iterable[str], window: int) -> list[str]:
    """Join texts into as few pieces of at most `window` estimated tokens as their order allows; a longer one is cut."""
    packed: list[str] = []
    room = 0
    for text in texts:
        for piece in split_text(text, window):
            size = count_tokens(piece) + 1
            if packed and size <= room:
                packed[-1] += "\n\n" + piece
                room -= size
            else:
                packed.append(piece)
                room = window - size
    return packed


class _Support(JudgedEvaluator):
    """The shared machinery: contexts packed into a window, first asked, then refined; the last reply decides."""

    needs: frozenset[str]
    parser: ClassVar[str] = "verdict"
    reply_tokens = 80

    def __init__(
        self, *, context_window: int = 12_000, on_yes: Literal["refine", "stop"] = "refine", **options: Any
    ) -> None:
        if on_yes not in ("refine", "stop"):
            raise ConfigurationError(f"on_yes is 'refine' or 'stop', not {on_yes!r}")
        super().__init__(context_window=context_window, on_yes=on_yes, **options)
        self._window = context_window
        self._stop = on_yes == "stop"

    async def assess(self, case: Case, session: Session) -> Outcome:
        """Ask about the first piece of context, then offer each next piece with the answer so far."""
        found: Verdict | None = None
        for context in pack(case.texts, self._window):
            step = "evaluate" if found is None else "refine"
            existing = "" if found is None else ("YES" if found.verdict else "NO")
            prompt = self.render(step, case, context=context, contexts=[context], existing_answer=existing)
            found = await session.read(prompt, verdict_reader(self.words), form=_FORM, schema=Verdict)
            if self._stop and found.verdict:
                break
        assert found is not None, "contexts are needed, so there is a piece"
        return Outcome(score=float(found.verdict), passing=found.verdict, explanation=found.reason or None)

    def calls_for(self, case: Case) -> int:
        """One call per piece of context."""
        return len(pack(case.texts, self._window))


class Faithfulness(_Support):
    """Is the response supported by the contexts? 1 or 0."""

    name = "faithfulness"
    needs = frozenset({"response", "contexts"})


class Relevancy(_Support):
    """Are response and contexts in line with the query? 1 or 0."""

    name = "relevancy"
    needs = frozenset({"query", "response", "contexts"})


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
    found = await session.read(prompt, json_or(Statements, _listed), form=form, schema=Statements)
    return [statement for statement in found.statements if statement.strip()]


async def check_statements(session: Session, prompt: str, statements: Sequence[str]) -> list[Checked]:
    """A verdict for each statement, in order; fewer or more verdicts than statements are unreadable."""

    def plain(text: str) -> CheckedStatements:
        verdicts = read_verdicts(text, len(statements), session.words)
        return CheckedStatements(statements=[Checked(verdict=verdict) for verdict in verdicts])

    def read(text: str) -> list[Checked]:
        found = json_or(CheckedStatements, plain)(text).statements
        check_count(statements, found, "statements")
        return [item.model_copy(update={"statement": s}) for s, item in zip(statements, found, strict=True)]

    form = '{"statements": [{"statement": "...", "reason": "...", "verdict": 1 | 0}]}'
    return await session.read(prompt, read, form=form, schema=CheckedStatements)


def unsupported(checked: Sequence[Checked]) -> str:
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
        return Outcome(score=fmean(item.verdict for item in checked), explanation=unsupported(checked), parts=parts)

    def calls_for(self, case: Case) -> int:
        """Two."""
        return 2


ENTRIES: tuple[Entry, ...] = (
    judged_entry(Faithfulness, "LlamaIndex"),
    judged_entry(Relevancy, "LlamaIndex"),
    judged_entry(StatementFaithfulness, "RAGAS (arXiv:2309.15217)"),
)
