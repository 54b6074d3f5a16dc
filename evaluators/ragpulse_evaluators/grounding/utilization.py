"""`context_utilization`: how much of what was retrieved does the answer draw on?"""

from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.grounding.evidence import index_of
from ragpulse_evaluators.grounding.groundedness import (
    MAX_RESPONSE_CHARS,
    MAX_SENTENCES,
    readable_contexts,
    readable_response,
)
from ragpulse_evaluators.grounding.meanings import LEXICON_ID
from ragpulse_evaluators.grounding.text import split_sentences, words
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

__all__ = ["ENTRIES", "ContextUse", "ContextUtilization", "context_use"]

_ENOUGH = 0.5
_AS_GOOD = 0.8


@dataclass(slots=True, kw_only=True)
class ContextUse:
    """One context: its rank (from 1), whether the answer draws on it, and its best cover of an answer sentence."""

    rank: int
    used: bool
    cover: float


class ContextUtilization(Evaluator):
    """Share of the retrieved contexts (those with text) that the answer draws on; `parts["contexts"]` flags each.

    A context is used when one of its sentences covers at least half of the content words (rare words count more) of an
    answer sentence and no other context covers it clearly better. Low values mean the retriever brings ballast; equal
    copies of a passage all count as used. Source: this project.
    """

    name = "context_utilization"
    needs = frozenset({"response", "contexts"})
    scale = Scale()
    immediate = True

    def __init__(self, *, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold, enough=_ENOUGH, as_good=_AS_GOOD, lexicon=LEXICON_ID)

    def run(self, case: Case) -> Outcome:
        """Score one case."""
        response = readable_response(case)
        uses = context_use(response, [c.text for c in readable_contexts(case)])
        used = [u.rank for u in uses if u.used]
        ranks = ", ".join(map(str, used)) or "none"
        return Outcome(
            score=round(len(used) / len(uses), 4),
            explanation=f"The answer draws on {len(used)} of {len(uses)} contexts (rank {ranks}).",
            parts={"used": used, "contexts": [{"rank": u.rank, "used": u.used, "cover": u.cover} for u in uses]},
        )


def context_use(response: str, contexts: Sequence[str]) -> list[ContextUse]:
    """Tell for each context with text whether the response draws on it."""
    index = index_of(tuple(contexts))
    cover = {number: 0.0 for number, text in enumerate(contexts) if text.strip()}
    used: set[int] = set()
    for sentence in split_sentences(response[:MAX_RESPONSE_CHARS])[:MAX_SENTENCES]:
        covers = index.covers(words(sentence.text))
        best = max(covers.values(), default=0.0)
        used |= {n for n, c in covers.items() if c >= _ENOUGH and c >= _AS_GOOD * best}
        cover |= {n: max(cover[n], c) for n, c in covers.items()}
    return [ContextUse(rank=n + 1, used=n in used, cover=round(c, 4)) for n, c in cover.items()]


ENTRIES: tuple[Entry, ...] = (
    Entry.of(
        ContextUtilization,
        source="this project",
        description="Share of the retrieved contexts that the response draws on.",
    ),
)
