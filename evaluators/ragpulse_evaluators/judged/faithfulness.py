"""Is the response supported by the contexts, as a whole or statement by statement?

`faithfulness` and `relevancy` are LlamaIndex's: one yes or no, refined over as many calls as the contexts need.
`statement_faithfulness` is RAGAS': the response is split into statements, each is checked against the contexts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, WithJsonSchema

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import Abstained, ContextTooLong, Unreadable, excerpt, unreadable
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, Passing, Reason, Reply, VerdictReply
from ragpulse_evaluators.judges.parsing import check_count, is_nothing, read_verdicts
from ragpulse_evaluators.judges.protocol import Message, count_tokens, split_text
from ragpulse_evaluators.judges.tokens import Words, is_json
from ragpulse_evaluators.result import Outcome

_SMALLEST_WINDOW = 128


def pack(texts: Iterable[str], window: int) -> list[str]:
    """Join texts into as few pieces of at most `window` estimated tokens as their order allows; a longer one is cut."""
    packed: list[str] = []
    free = 0
    for text in texts:
        for piece in split_text(text, window):
            size = count_tokens(piece) + 1
            if packed and size <= free:
                packed[-1] += "\n\n" + piece
                free -= size
            else:
                packed.append(piece)
                free = window - size
    return packed


class _Support(JudgedEvaluator):
    """Contexts packed into a window: the judge answers on the first piece and refines on each next one."""

    parser = "verdict"
    reply_tokens = 80

    def __init__(
        self, *, context_window: int = 12_000, on_yes: Literal["refine", "stop"] = "refine", **options: Any
    ) -> None:
        super().__init__(context_window=context_window, on_yes=on_yes, **options)
        self._window = context_window
        self._stop = on_yes == "stop"

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Ask piece by piece; where a piece is too long for the judge, once more with smaller pieces."""
        try:
            return await self._refined(case, session, self._window)
        except ContextTooLong as error:
            window = (error.window or min(self._window, count_tokens("\n\n".join(case.texts)))) // 2
            if window < _SMALLEST_WINDOW or window >= self._window:
                raise
            outcome = await self._refined(case, session, window)
            note = f"(asked in pieces of {window} tokens: the judge's window is too small for {self._window})"
            explanation = f"{outcome.explanation or ''} {note}".strip()
            return replace(outcome, explanation=explanation, parts={"context_window": window})

    async def _refined(self, case: Case, session: JudgeSession, window: int) -> Outcome:
        """Ask about the first piece of context, then offer each next piece with the answer so far."""
        verdict: VerdictReply | None = None
        for context in pack(case.texts, window):
            step = "evaluate" if verdict is None else "refine"
            existing = "" if verdict is None else ("YES" if verdict.verdict else "NO")
            prompt = self.render(step, case, context=context, contexts=[context], existing_answer=existing)
            verdict = await session.reply(prompt, VerdictReply)
            if self._stop and verdict.verdict:
                break
        assert verdict is not None, "contexts are needed, so there is a piece"
        return Outcome(score=float(verdict.verdict), passing=verdict.verdict, explanation=verdict.reason or None)

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


class Statements(Reply):
    """`{"statements": ["...", "..."]}`."""

    form = '{"statements": ["...", "..."]}'
    statements: list[str]

    @classmethod
    def of_text(cls, text: str, words: Words) -> Self:
        """A list beside an object contradicts nothing."""
        return cls.of_json(text) if is_json(text) else cls.plain(text, words)

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """Statements from a numbered or dashed list; free text is not taken for statements."""
        del words
        statements = [item[1].strip() for line in text.splitlines() if (item := _ITEM.match(line))]
        if not statements:
            unreadable("a list of statements", text)
        return cls(statements=statements)


class Checked(Reply):
    """One statement with its verdict."""

    number: Annotated[int | None, WithJsonSchema({"type": "integer"})] = None
    statement: str = ""
    reason: Reason = ""
    verdict: Passing


class CheckedStatements(Reply):
    """`{"statements": [{"number": 1, "statement": "...", "reason": "...", "verdict": "YES"}]}`."""

    form = '{"statements": [{"number": 1, "statement": "...", "reason": "...", "verdict": "YES" | "NO"}]}'
    statements: Annotated[list[Checked], Field(validation_alias=AliasChoices("statements", "verdicts", "NLI"))]


async def split_statements(session: JudgeSession, prompt: Sequence[Message]) -> list[str]:
    """The statements the judge finds; none is a valid answer."""
    reply = await session.reply(prompt, Statements)
    none = session.words.none | {""}
    return list(dict.fromkeys(one for one in reply.statements if not is_nothing(one, none)))


async def check_statements(
    session: JudgeSession, prompt: Sequence[Message], statements: Sequence[str]
) -> list[Checked]:
    """A verdict for each statement, in order; a statement without a verdict of its own is unreadable."""

    def checked(text: str) -> list[Checked]:
        if is_json(text):
            return matched(statements, CheckedStatements.of_json(text).statements)
        return matched(statements, [Checked(verdict=v) for v in read_verdicts(text, len(statements), session.words)])

    return await session.parse(prompt, checked, form=CheckedStatements.form, schema=CheckedStatements)


def matched(statements: Sequence[str], items: Sequence[Checked]) -> list[Checked]:
    """The verdict on each statement: matched by its words, then by its number; by position where verdicts have neither.

    Raises `Unreadable` for a statement without verdict, for two verdicts that differ, and for an unknown statement.
    """
    bare = all(not item.statement and item.number is None for item in items)
    if bare:
        check_count(statements, items, "statements")
    plain_statements = [_plain(statement) for statement in statements]
    verdicts: dict[int, Checked] = {}
    for position, item in enumerate(items):
        index = position if bare else _index(item, plain_statements)
        if verdicts.setdefault(index, item).verdict != item.verdict:
            raise Unreadable(f"two verdicts on {excerpt(statements[index])!r}")
    if missing := [statement for index, statement in enumerate(statements) if index not in verdicts]:
        raise Unreadable(f"no verdict on {excerpt(missing[0])!r}")
    return [verdicts[index].model_copy(update={"statement": text}) for index, text in enumerate(statements)]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _index(item: Checked, statements: Sequence[str]) -> int:
    """Which statement an item is about."""
    words = _plain(item.statement)
    if words in statements:
        return statements.index(words)
    if item.number is not None and 1 <= item.number <= len(statements):
        return item.number - 1
    if close := difflib.get_close_matches(words, statements, n=1, cutoff=0.8):
        return statements.index(close[0])
    raise Unreadable(f"{excerpt(item.statement)!r} is none of the {len(statements)} statements")


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
    parser = "statements"
    cost_class = "k calls"
    calls = 2
    reply_tokens = 400

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Two calls: take apart, check."""
        statements = await split_statements(session, self.render("statements", case, text=case.response or ""))
        if not statements:
            raise Abstained("nothing to check: the response states nothing")
        prompt = self.render("check", case, statements=statements, source=case.texts)
        checked = await check_statements(session, prompt, statements)
        parts: dict[str, Any] = {"statements": [item.model_dump() for item in checked]}
        return Outcome(score=fmean(item.verdict for item in checked), explanation=unsupported(checked), parts=parts)


ENTRIES = (
    judged_entry(Faithfulness, "LlamaIndex"),
    judged_entry(Relevancy, "LlamaIndex"),
    judged_entry(StatementFaithfulness, "RAGAS (arXiv:2309.15217)"),
)
