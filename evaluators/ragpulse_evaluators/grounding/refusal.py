"""`refusal`: does the response decline to answer? Read by phrases, so a silent evasion counts as an answer."""

import re
from functools import lru_cache

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.grounding.refusal_phrases import DECLINES, OFFERS, expand, may_decline
from ragpulse_evaluators.grounding.text import split_sentences, words
from ragpulse_evaluators.result import Outcome

__all__ = ["Refusal", "find_refusal"]

_READ_CHARS = 4_000
_MAX_REST = 12
"""Content words beside the refusal that still leave it a refusal (an apology, an offer to help otherwise)."""

_BUT = re.compile(
    r"\b(?:but|however|though|although|pero|mas|porém|aber|jedoch|mais|cependant)\b|但|不过|然而", re.IGNORECASE
)


class Refusal(Evaluator):
    """Label `refusal` where the response declines to answer, else `answer`; score 1 = answered, 0 = refused.

    1 is "answered" so that the mean over traffic is the answer rate and a rise of refusals shows as a fall. Whether a
    refusal was right depends on the contexts: read it beside retrieval quality. Known: English, Chinese, Spanish,
    Portuguese, German, French; other languages read as `answer`. Source: this project.
    """

    name = "refusal"
    needs = frozenset({"response"})
    scale = Scale()
    immediate = True

    def __init__(self, *, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold, patterns=DECLINES.pattern, rest=_MAX_REST)

    def run(self, case: Case) -> Outcome:
        """Label one response; a response without words is a refusal."""
        response = case.response or ""
        if not any(c.isalnum() for c in response):
            return Outcome(score=0.0, label="refusal", explanation="The response holds no words.")
        phrase = find_refusal(response)
        if phrase:
            return Outcome(score=0.0, label="refusal", explanation=f"It declines: “{phrase}”.")
        return Outcome(score=1.0, label="answer", explanation="No phrase that declines to answer decides the response.")


@lru_cache(maxsize=2)
def find_refusal(response: str) -> str | None:
    """Return the phrase by which a response declines to answer as a whole; None where it (also) answers.

    A response that declines in one sentence and goes on to tell more than a dozen content words is an answer. What was
    found is kept for the next check of the same case.
    """
    phrase, rest = None, 0
    texts = [sentence.text for sentence in split_sentences(expand(response[:_READ_CHARS]))]
    declining = [DECLINES.search(text) if may_decline(text) else None for text in texts]
    if not any(declining):
        return None
    for text, match in zip(texts, declining, strict=True):
        if match:
            phrase = phrase or match.group().strip()
            rest += _content_after_but(text[match.end() :])
        elif not OFFERS.search(text):
            rest += _content(text)
    return phrase if phrase and rest <= _MAX_REST else None


def _content_after_but(tail: str) -> int:
    match = _BUT.search(tail)
    return _content(tail[match.end() :]) * 2 if match else 0


def _content(text: str) -> int:
    return sum(not t.function for t in words(text))
