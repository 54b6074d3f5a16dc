"""LlamaIndex's faithfulness and relevancy: one yes or no, refined over as many calls as the contexts need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import Verdict, verdict_reader
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.tokens import count_tokens, split_text
from ragpulse_evaluators.result import Outcome

__all__ = ("Faithfulness", "Relevancy", "pack")

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
        """One call a piece of context."""
        return len(pack(case.texts, self._window))


class Faithfulness(_Support):
    """Is the response supported by the contexts? 1 or 0."""

    name = "faithfulness"
    needs = frozenset({"response", "contexts"})


class Relevancy(_Support):
    """Are response and contexts in line with the query? 1 or 0."""

    name = "relevancy"
    needs = frozenset({"query", "response", "contexts"})
