"""`perturb`: labelled negatives that differ from a good answer by one fact."""

import pytest

from ragpulse_evaluators import Case
from ragpulse_evaluators.grounding import LabelledCase, perturb
from ragpulse_evaluators.grounding.groundedness import Groundedness
from ragpulse_evaluators.grounding.perturb import KINDS

CASES = [
    Case(
        response="The Eiffel Tower is 330 metres tall and was completed in March 1889 by Gustave Eiffel.",
        contexts=["The Eiffel Tower is 330 metres tall and was completed in March 1889 by Gustave Eiffel's company."],
    ),
    Case(
        response="Bananas were not sold in Norway before 1905; today 12 kg are eaten by each person.",
        contexts=["Bananas were not sold in Norway before 1905. Today 12 kg are eaten by each person per year."],
    ),
    Case(
        response="Version 2.10 was faster than version 2.9 and opened most of 12 GB in May 2019 for Ann Roe.",
        contexts=[
            "Version 2.10 was faster than version 2.9 and opened most of 12 GB in May 2019 for Ann Roe.",
            "The rose garden was planted by Bo Lund in 1950. In Quito, Bo Lund has a farm of 14 acres and 3 cows.",
        ],
    ),
    Case(response="巴黎是法国的首都，人口约200万。", contexts=["巴黎是法国的首都，人口约200万，位于塞纳河畔。"]),
]


def by_kind(labelled: list[LabelledCase], source: int) -> dict[str, LabelledCase]:
    """Index the copies of one case by kind of edit."""
    return {item.kind: item for item in labelled if item.source == source}


def test_every_kind_is_made() -> None:
    """Each kind of edit applies to one of these cases."""
    assert {item.kind for item in perturb(CASES)} == {"original", *KINDS}


def test_one_edit_and_its_label() -> None:
    """Originals keep their text and are supported; each copy differs and is not."""
    for item in perturb(CASES):
        changed = item.case.response != CASES[item.source].response
        assert (item.supported, item.label, changed) == (
            (True, 1, False) if item.kind == "original" else (False, 0, True)
        )
        assert item.case.contexts == CASES[item.source].contexts


def test_same_seed_same_edits() -> None:
    """The seed decides: equal seeds agree, another seed differs."""
    assert perturb(CASES, seed=4) == perturb(CASES, seed=4)
    assert perturb(CASES, seed=4) != perturb(CASES, seed=5)


def test_negation_is_removed_where_there_is_one() -> None:
    """A negated answer loses its negation, another gains one, in Chinese too."""
    labelled = perturb(CASES)
    assert "were not" not in (by_kind(labelled, 1)["negation"].case.response or "")
    assert "不是" in (by_kind(labelled, 3)["negation"].case.response or "")


def test_unusable_cases_are_left_out() -> None:
    """Cases without response or context texts give nothing; positions still count all given cases."""
    labelled = perturb([Case(response="x"), Case(contexts=["y"]), CASES[0]])
    assert {item.source for item in labelled} == {2}


@pytest.mark.anyio
async def test_groundedness_tells_edits_from_originals() -> None:
    """Every original passes, and every edit of a quantity scores lower; exchanged words may not."""
    seen = ("original", "number", "date", "version", "unit")
    scored = [
        (item, (await Groundedness()(item.case)).parts["weakest"]) for item in perturb(CASES) if item.kind in seen
    ]
    original = {item.source: score for item, score in scored if item.supported}
    assert all(score > 0.5 for score in original.values())
    assert all(score < original[item.source] for item, score in scored if not item.supported)


def test_a_number_in_letters_becomes_another_one() -> None:
    """An edited copy never says the number of the original."""
    case = Case(response="It takes three days.", contexts=["It takes three days."])
    edits = [item.edit for seed in range(20) for item in perturb([case], seed=seed, kinds=["number"]) if item.edit]
    assert len(edits) == 20
    assert "three → three" not in edits


def test_a_name_takes_the_place_of_a_name() -> None:
    """The first word of a sentence is no name for its capital: "Tanaka the request" is no edit of one fact."""
    text = "The form is online. Approve the request within a day. Guests pay by card. Ask Ann Roe for help."
    case = Case(response=text, contexts=[text])
    edits = [item.edit for seed in range(20) for item in perturb([case], seed=seed, kinds=["name"])]
    assert {edit.split(" → ")[0] for edit in edits if edit} == {"Ann", "Roe"}
