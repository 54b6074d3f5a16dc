"""ROUGE of answer and reference, for any language (Lin 2004); for ASCII text the values of Google's rouge-score."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import spoken, words

__all__ = ("ENTRIES", "rouge")

_TABLE_CELLS = 250_000
_VARIANT = re.compile(r"rouge(?:[1-9]|L|Lsum)")


def rouge(response: str, reference: str | tuple[str, ...], *, variant: str = "rougeL") -> Outcome:
    """F1 of the n-grams (`rouge1`, `rouge2`, ...) or longest common subsequence shared with the nearest reference.

    `rougeLsum` takes each line as a sentence. Parts: precision and recall. No stemming.
    """
    measure = _measure(variant)
    return max((measure(text, response) for text in spoken(reference)), key=lambda found: found.score or 0.0)


def _measure(variant: str) -> Callable[[str, str], Outcome]:
    if variant == "rougeL":
        return _longest
    if variant == "rougeLsum":
        return _longest_by_line
    return lambda wanted, given: _ngrams(wanted, given, int(variant.removeprefix("rouge")))


def _outcome(shared: int, wanted: int, given: int) -> Outcome:
    precision, recall = (shared / size if size else 0.0 for size in (given, wanted))
    f1 = 2.0 * precision * recall / (precision + recall) if shared else 0.0
    return Outcome(score=f1, parts={"precision": precision, "recall": recall})


def _ngrams(wanted: str, given: str, n: int) -> Outcome:
    counts = [
        Counter(zip(*(islice(found, i, None) for i in range(n)), strict=False)) for found in map(words, (wanted, given))
    ]
    return _outcome((counts[0] & counts[1]).total(), counts[0].total(), counts[1].total())


def _longest(wanted: str, given: str) -> Outcome:
    from rapidfuzz.distance import LCSseq

    left, right = words(wanted), words(given)
    return _outcome(LCSseq.similarity(left, right), len(left), len(right))


def _longest_by_line(wanted: str, given: str) -> Outcome:
    """Summary-level ROUGE-L: each reference line against the union of its common subsequences with all answer lines."""
    left, right = ([found for line in text.split("\n") if (found := words(line))] for text in (wanted, given))
    free_left, free_right = (Counter(token for line in lines for token in line) for lines in (left, right))
    sizes = free_left.total(), free_right.total()
    shared = 0
    for line in left:
        places = set().union(*(_subsequence(line, other) for other in right)) if right else set()
        for token in (line[place] for place in sorted(places)):
            if free_left[token] > 0 and free_right[token] > 0:
                shared += 1
                free_left[token] -= 1
                free_right[token] -= 1
    return _outcome(shared, *sizes)


def _subsequence(line: Sequence[str], other: Sequence[str]) -> set[int]:
    """The places in `line` of a longest common subsequence, ties broken as rouge-score breaks them.

    Lines of thousands of words are left to rapidfuzz, which is fast and breaks ties its own way.
    """
    if len(line) * len(other) > _TABLE_CELLS:
        from rapidfuzz.distance import LCSseq

        equal = [block for block in LCSseq.opcodes(line, other) if block.tag == "equal"]
        return {place for block in equal for place in range(block.src_start, block.src_end)}
    table = [[0] * (len(other) + 1)]
    for token in line:
        row, above = [0], table[-1]
        for column, rival in enumerate(other, start=1):
            row.append(above[column - 1] + 1 if token == rival else max(above[column], row[-1]))
        table.append(row)
    places, i, j = set(), len(line), len(other)
    while i and j:
        if line[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            places.add(i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places


def _rouge(*, variant: str = "rougeL", threshold: float | None = None) -> Evaluator:
    if not _VARIANT.fullmatch(variant):
        raise ConfigurationError(f"rouge has no variant {variant!r}; choose rouge1 .. rouge9, rougeL or rougeLsum")
    return Function(rouge, scale=Scale(), threshold=threshold, variant=variant)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="rouge",
        factory=_rouge,
        needs=("response", "reference"),
        scale=Scale(),
        source="Lin 2004; rouge-score",
        description="How much wording do answer and reference share, in order?",
        example='get_evaluator("rouge", variant="rouge2")',
    ),
)
