"""What a case accepts and how it reads the answers of other frameworks."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from ragpulse_evaluators import Case, Context


def test_contexts_are_typed_from_strings_mappings_and_objects() -> None:
    """Plain strings, mappings and objects with a text become contexts in order."""
    case = Case(
        contexts=["a", {"text": "b", "score": 0.5}, SimpleNamespace(page_content="c"), Context("d", "id4", 0.9)]
    )
    assert case.texts == ("a", "b", "c", "d")
    assert case.contexts is not None
    assert case.contexts[1].score == 0.5


def test_ids_are_strings_and_plain_relevant_ids_have_grade_one() -> None:
    """A list of relevant ids means grade 1 each; numbers become text."""
    case = Case(retrieved_ids=[3, "x"], relevant_ids=[3])
    assert (case.retrieved_ids, case.relevant_ids) == (("3", "x"), {"3": 1})


def test_unknown_fields_are_refused() -> None:
    """A misspelt field is an error, not silently lost."""
    with pytest.raises(ValidationError):
        Case(answer="x")  # type: ignore[call-arg]


class Node:
    """A LlamaIndex-shaped node with score."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.score = 0.25
        self.node = SimpleNamespace(node_id="n1", metadata={"page": 3})

    def get_content(self) -> str:
        """The text."""
        return self._text


def test_a_llama_index_answer_becomes_a_case() -> None:
    """Response text and node contents are read; query and reference are added."""
    answer = SimpleNamespace(response="r", source_nodes=[Node("one"), Node("two")])
    case = Case.from_response(answer, query="q", reference="g")
    assert (case.response, case.texts, case.query, case.references) == ("r", ("one", "two"), "q", ("g",))
    assert case.contexts is not None
    assert (case.contexts[0].id, case.contexts[0].score, case.contexts[0].metadata) == ("n1", 0.25, {"page": 3})


@pytest.mark.parametrize("answer", ["plain", {"response": "plain"}, SimpleNamespace(response="plain")])
def test_strings_mappings_and_objects_without_nodes_are_answers_too(answer: Any) -> None:
    """Without source nodes there are no contexts, which is not the same as empty ones."""
    case = Case.from_response(answer, query="q")
    assert (case.response, case.contexts, case.query) == ("plain", None, "q")


def test_texts_are_made_storable() -> None:
    """Lone surrogates become the replacement character, pairs a character; a context without text is empty."""
    case = Case(response="a\ud800b", reference=["\udfff"], query="\ud83d\ude00", contexts=[{"text": None, "id": "1"}])
    assert (case.response, case.references, case.query, case.texts) == ("a\ufffdb", ("\ufffd",), "😀", ("",))
