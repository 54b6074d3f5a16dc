"""The replies of judges to the labelled answers of `ragpulse judge check`."""

from __future__ import annotations

import json
from collections.abc import Callable

from ragpulse_evaluators.meta import builtin_tests
from ragpulse_evaluators.meta.pairs import builtin_pairs

PAIRS = builtin_pairs()
RIGHT = {pair.right: True for pair in PAIRS} | {pair.wrong: False for pair in PAIRS}
RIGHT |= {test.actual_output: test.mode != "altered_facts" and test.mode != "answers_without_evidence"
          for test in builtin_tests()}  # fmt: skip
Truth = Callable[[str], bool]
GOOD = "good: it tells right answers from wrong ones"


def truth(prompt: str) -> bool:
    """Whether the answer in a prompt is right; the longest one counts, where one holds another."""
    return RIGHT[max((answer for answer in RIGHT if answer in prompt), key=len)]


def choice(prompt: str) -> str:
    """The place of the right answer of a pair."""
    pair = next(pair for pair in PAIRS if pair.right in prompt and pair.wrong in prompt)
    return "1" if prompt.rindex(pair.right) < prompt.rindex(pair.wrong) else "2"


def judged(prompt: str, verdict: Truth, winner: Callable[[str], str]) -> str:
    """The reply that a prompt asks for."""
    if "the shop opens at nine" in prompt:
        return '{"reason": "", "verdict": "YES"}'
    if '"winner"' in prompt:
        return json.dumps({"reason": "", "winner": winner(prompt)})
    return json.dumps({"reason": "", "verdict": "YES" if verdict(prompt) else "NO"})
