"""`citation_check`: marks, what they point to, and whether that says it."""

import pytest

from ragpulse_evaluators import Case, Context, EvaluationResult, get_evaluator
from ragpulse_evaluators.case import ID_KEYS
from ragpulse_evaluators.grounding.citations import check_citations

CONTEXTS = (
    {"id": "tower", "text": "The Eiffel Tower is 330 metres tall and was completed in 1889."},
    {"id": "paris", "text": "Paris is the capital of France."},
    {"id": "fruit", "text": "Bananas are rich in potassium."},
)


async def check(response: str) -> EvaluationResult:
    """Check a response that cites CONTEXTS."""
    return await get_evaluator("citation_check")(Case(response=response, contexts=CONTEXTS))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "response",
    [
        "The Eiffel Tower is 330 metres tall [1].",
        "The Eiffel Tower is 330 metres tall.[1]",
        "The Eiffel Tower is 330 metres tall 【1】.",
        "The Eiffel Tower is 330 metres tall [^1].",
        "The Eiffel Tower is 330 metres tall (doc 1).",
        "The Eiffel Tower is 330 metres tall [tower].",
        "The Eiffel Tower is 330 metres tall (id: tower).",
        "According to [1], the Eiffel Tower is 330 metres tall.",
    ],
)
async def test_mark_forms(response: str) -> None:
    """Every usual form of a mark resolves to its context and the claim is found."""
    result = await check(response)
    assert result.score == 1.0, result.parts
    assert [c["rank"] for c in result.parts["citations"]] == [1]


@pytest.mark.anyio
async def test_each_mark_judges_its_own_claim() -> None:
    """Two marks in one sentence split it: the second points to a context that does not say it."""
    result = await check("Paris is the capital of France [2] and the Eiffel Tower is 330 metres tall [3].")
    assert result.score == 0.5
    assert [c["supported"] for c in result.parts["citations"]] == [True, False]


@pytest.mark.anyio
async def test_citation_of_a_context_that_does_not_exist() -> None:
    """A mark beyond the contexts is unsupported and says how many there were."""
    result = await check("Bananas are rich in potassium [3][9].")
    assert [c["rank"] for c in result.parts["citations"]] == [3, None]
    assert "there is no context 9: 3 were retrieved" in (result.explanation or "")


@pytest.mark.anyio
async def test_lists_and_ranges() -> None:
    """`[1,3]` and `[1-3]` name several contexts; those that add nothing are unsupported."""
    result = await check("Bananas are rich in potassium [1-3].")
    assert [(c["rank"], c["supported"]) for c in result.parts["citations"]] == [(1, False), (2, False), (3, True)]
    assert len((await check("Bananas are rich in potassium [1, 3].")).parts["citations"]) == 2


@pytest.mark.anyio
async def test_counting_from_zero() -> None:
    """A response that uses `[0]` counts from zero."""
    result = await check("The Eiffel Tower is 330 metres tall [0]. Paris is the capital of France [1].")
    assert [c["rank"] for c in result.parts["citations"]] == [1, 2]
    assert result.score == 1.0


@pytest.mark.anyio
@pytest.mark.parametrize(
    "response", ["No marks here.", "A [link](http://x) and (see below) and [sic].", "Since (2019)."]
)
async def test_no_citations_is_skipped(response: str) -> None:
    """Links, asides and years are no citations; without any the check is skipped."""
    result = await check(response)
    assert (result.status, result.explanation) == ("skipped", "missing: citations (the response has none)")


FAQ = [
    Context(text="Refunds are possible within thirty days.", metadata={"id": "faq-12", "source": "docs/faq.md"}),
    Context(
        text="The parcel takes two days.", metadata={"source": "docs/faq.md", "url": "https://example.org/parcels"}
    ),
    Context(
        text="Returns are free of charge.", id="c7f1", metadata={"chunk_id": "returns-1", "file_name": "returns.pdf"}
    ),
]


@pytest.mark.parametrize(
    ("response", "rank", "supported"),
    [
        ("Refunds are possible within thirty days [faq-12].", 1, True),
        ("Bananas are rich in potassium [faq-12].", 1, False),
        ("The parcel takes two days [docs/faq.md].", 2, True),
        ("The parcel takes two days [faq.md].", 2, True),
        ("The parcel takes two days [source: faq.md].", 2, True),
        ("The parcel takes two days (https://example.org/parcels).", 2, True),
        ("The parcel takes two days 【https://example.org/parcels】.", 2, True),
        ("Returns are free of charge [returns.pdf].", 3, True),
        ("Returns are free of charge [returns-1].", 3, True),
        ("Returns are free of charge [c7f1].", 3, True),
        ("Bananas are rich in potassium [returns.pdf].", 3, False),
        ("Refunds need the approval of a manager within thirty days [faq.md].", 1, True),  # the other is unclear
    ],
)
def test_a_mark_may_name_an_id_in_the_metadata_or_the_document(response: str, rank: int, supported: bool) -> None:
    """Of the passages of a document the one counts that says the claim."""
    (citation,) = check_citations(response, FAQ)
    assert (citation.rank, citation.supported) == (rank, supported)


@pytest.mark.parametrize("key", ID_KEYS)
def test_an_id_in_the_metadata_is_the_passages(key: str) -> None:
    """Under every key; an id of its own goes first."""
    assert Context(text="Paris.", metadata={key: "faq-12", "source": "faq.md"}).id == "faq-12"
    assert Context(text="Paris.", id="own", metadata={key: "faq-12"}).id == "own"
    (read,) = Case.model_validate({"contexts": [{"text": "Paris.", "metadata": {key: 12}}]}).contexts or ()
    assert read.id == "12"
