"""What a case accepts and how it reads the answers of other frameworks."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from ragpulse_evaluators import Case, Context, Turn


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


@pytest.mark.parametrize(
    ("column", "said"),
    [("respones", "respones"), ("question", "'query'"), ("answer", "'response'"), ("ground_truths", "'reference'")],
)
def test_unknown_fields_are_refused(column: str, said: str) -> None:
    """A misspelt field is an error, not silently lost; columns of other packages are answered with our names."""
    with pytest.raises(ValidationError, match=said):
        Case.model_validate({column: "x"})


@pytest.mark.parametrize(
    "history",
    [
        [("q1", "a1"), ("q2", None)],
        [{"query": "q1", "response": "a1"}, {"query": "q2"}],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "q1"},
            {"role": "assistant", "content": "a1"},
            {"role": "user", "content": "q2"},
        ],
    ],
)
def test_the_turns_before_come_as_pairs_mappings_or_chat_messages(history: list[Any]) -> None:
    """Each form gives the same turns; no turn at all counts as no history."""
    case = Case(history=history)
    assert case.history == (Turn(query="q1", response="a1"), Turn(query="q2"))
    assert Case.model_validate_json(case.model_dump_json()) == case
    assert Case(history=[]).lacks("history")


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
