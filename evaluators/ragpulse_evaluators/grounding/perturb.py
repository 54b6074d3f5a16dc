"""Labelled negatives from one's own answers: one small edit makes a supported answer wrong, word overlap hardly moves.

Tests any groundedness evaluator or judge: `perturb(cases)` returns every case as it is (supported) and one edited copy
for each kind of edit that applies (unsupported). The given cases are taken as supported: pass good ones.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.grounding import edits
from ragpulse_evaluators.grounding.edits import Edit, Material
from ragpulse_evaluators.grounding.text import tokenize

__all__ = ["KINDS", "EditKind", "LabelledCase", "perturb"]

EditKind = Literal["original", "number", "date", "name", "unit", "negation", "clause"]
_EDITS: dict[EditKind, Callable[[Material], Edit | None]] = {
    "number": edits.number,
    "date": edits.date,
    "name": edits.name,
    "unit": edits.unit,
    "negation": edits.negation,
    "clause": edits.clause,
}
KINDS: tuple[EditKind, ...] = tuple(_EDITS)


@dataclass(frozen=True, kw_only=True)
class LabelledCase:
    """A case with its truth: is the response supported by the contexts?"""

    case: Case
    supported: bool
    kind: EditKind
    edit: str
    """What was changed, e.g. "330 → 130"; empty for an original."""
    source: int
    """Position of the original in the given cases."""

    @property
    def label(self) -> int:
        """1 supported, 0 not: what `calibrate` takes as the human score."""
        return int(self.supported)


def perturb(cases: Sequence[Case], *, seed: int = 0, kinds: Sequence[EditKind] = KINDS) -> list[LabelledCase]:
    """Return originals (supported) and their edited copies (unsupported), in the order of the cases.

    Edits: another number, another date, another name, another unit, a negation added or removed, a clause from
    elsewhere appended. Cases without response or context texts are left out. Same cases and seed, same result.
    """
    usable = [i for i, case in enumerate(cases) if (case.response or "").strip() and any(case.texts)]
    donors = edits.Donors.of([(cases[i].response or "", cases[i].texts) for i in usable])
    labelled: list[LabelledCase] = []
    for i in usable:
        labelled.append(LabelledCase(case=cases[i], supported=True, kind="original", edit="", source=i))
        labelled += _edited(cases[i], i, donors, seed, kinds)
    return labelled


def _edited(case: Case, i: int, donors: edits.Donors, seed: int, kinds: Sequence[EditKind]) -> list[LabelledCase]:
    response, known = case.response or "", " ".join((*case.texts, case.response or ""))
    keys = frozenset(t.key for t in tokenize(known))
    found = []
    for kind in kinds:
        chance = random.Random(f"{seed}:{i}:{kind}")
        edit = _EDITS[kind](Material(response, tuple(tokenize(response)), keys, donors, chance))
        if edit:
            changed = response[: edit.start] + edit.text + response[edit.end :]
            copy = case.model_copy(update={"response": changed})
            found.append(LabelledCase(case=copy, supported=False, kind=kind, edit=edit.told(response), source=i))
    return found
