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


@pytest.mark.parametrize("column", ["respones", "vars", "outputs", "references", "dataset_id"])
def test_unknown_fields_are_refused(column: str) -> None:
    """A misspelt field is an error, not silently lost; so is a column that means different things."""
    with pytest.raises(ValidationError, match=column):
        Case.model_validate({column: "x"})


TWO = {"contexts": ["a", "b"]}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pandas": ({"contexts": "['a', 'b']"}, TWO),
    "pandas, quotes": ({"contexts": """["it's", 'a "b"']"""}, {"contexts": ["it's", 'a "b"']}),
    "pandas, objects": ({"contexts": "[{'page_content': 'a', 'metadata': {}}, {'content': 'b'}]"}, TWO),
    "numpy": ({"contexts": "['a' 'b']"}, TWO),
    "numpy, lines": ({"contexts": "['a'\n \"b\"]"}, TWO),
    "numpy, repr": ({"contexts": "array(['a', 'b'], dtype=object)"}, TWO),
    "JSON": ({"contexts": '["a", "b"]'}, TWO),
    "an empty list": ({"contexts": "[]"}, {"contexts": []}),
    "no list": ({"contexts": "[1] Paris (see [2])"}, {"contexts": ["[1] Paris (see [2])"]}),
    "a note": ({"contexts": "[Note] Paris"}, {"contexts": ["[Note] Paris"]}),
    "a JSON document": ({"contexts": '{"a": 1}'}, {"contexts": ['{"a": 1}']}),
    "pairs": ({"contexts": [["a", 0.5], ("b", 1)]}, TWO),
    "ids": ({"retrieved_ids": "['1', '2']", "relevant_ids": "{'1': 2}"},
            {"retrieved_ids": ("1", "2"), "relevant_ids": {"1": 2.0}}),
    "one id": ({"retrieved_ids": "dc", "relevant_ids": "dc"}, {"retrieved_ids": ("dc",), "relevant_ids": {"dc": 1}}),
    "references of pandas": ({"ground_truths": "['a', 'b']"}, {"reference": ("a", "b")}),
    "an answer in JSON": ({"reference": '["a", "b"]'}, {"reference": '["a", "b"]'}),
    "an object": ({"expected_output": {"answer": "x"}}, {"reference": "x"}),
    "an object with one text": ({"expected_output": {"colour": "x"}}, {"reference": "x"}),
    "an object with more": ({"expected_output": {"answer": "x", "score": 1}}, {"reference": "x"}),
    "objects": ({"expected_output": [{"answer": "x"}, "y"]}, {"reference": ("x", "y")}),
    "in objects": ({"input": {"question": "q"}, "output": {"text": "a"}}, {"query": "q", "response": "a"}),
    "MLflow": (
        {"inputs": {"question": "q"}, "outputs": "a", "expectations": {"expected_response": "x"}},
        {"query": "q", "response": "a", "reference": "x"},
    ),
    "LangSmith": (
        {"inputs": {"input": "q"}, "outputs": {"output": "a"}, "reference_outputs": {"answer": "x"}},
        {"query": "q", "response": "a", "reference": "x"},
    ),
    "Langfuse": ({"id": "1", "input": "q", "expectedOutput": {"answer": "x"}, "metadata": {"k": 1}},
                 {"query": "q", "reference": "x", "metadata": {"id": "1", "k": 1}}),
    "a golden": (
        {"input": "q", "actual_output": None, "expected_output": "x", "context": ["a", "b"], "source_file": "f",
         "retrieval_context": None, "additional_metadata": {"k": 1}, "comments": None, "tools_called": None},
        {"query": "q", "reference": "x", **TWO, "metadata": {"source_file": "f", "k": 1}},
    ),
    "a test case": (
        {"input": "q", "actualOutput": "y", "context": ["c"], "retrievalContext": ["a", "b"]},
        {"query": "q", "response": "y", **TWO, "metadata": {"context": ["c"]}},
    ),
    "GroUSE": (
        {"input": "q", "actual_output": "y", "expected_output": "x", "references": ["a", "b"]},
        {"query": "q", "response": "y", "reference": "x", **TWO},
    ),
    "Ragas": (
        {"user_input": "q", "retrieved_context_ids": ["1"], "reference_context_ids": ["2"], "synthesizer_name": "s"},
        {"query": "q", "retrieved_ids": ("1",), "relevant_ids": {"2": 1}, "metadata": {"synthesizer_name": "s"}},
    ),
    "a tuple": ({"contexts": "('a', 'b')"}, TWO),
    "numpy 2": ({"contexts": "[np.str_('a'), np.str_('b')]"}, TWO),
    "an array with its type": ({"contexts": "array(['a', 'b'], dtype='<U1')"}, TWO),
    "an array of numbers": ({"retrieved_ids": "[10 20\n 30]"}, {"retrieved_ids": ("10", "20", "30")}),
    "a text in brackets": ({"contexts": "[fn(x)] is called"}, {"contexts": ["[fn(x)] is called"]}),
    "a quotation": ({"contexts": "('it is', said he)"}, {"contexts": ["('it is', said he)"]}),
    "capitals": ({"Question": "q", "Answer": "y"}, {"query": "q", "response": "y"}),
    "nulls": ({"query": "q", "contexts": float("nan"), "reference": None, "whatever": None}, {"query": "q"}),
    "messages": (
        {"history": [{"type": "human", "content": "q1"}, {"type": "ai", "content": "a1"}]},
        {"history": (Turn(query="q1", response="a1"),)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_other_packages_are_cases(name: str) -> None:
    """Their names of columns, lists and objects written as text, and answers inside of objects."""
    row, expected = ROWS[name]
    case = Case.model_validate(row)
    given = {field: getattr(case, field) for field in case.model_fields_set}
    assert given | ({"contexts": list(case.texts)} if case.contexts is not None else {}) == expected


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"contexts": "[Document(page_content='a'), Document(page_content='b')]"}, "contexts: .* begins like a list"),
        ({"contexts": "['a' 'b' ... 'z']"}, "begins like a list"),
        ({"contexts": "['a', nan]"}, "begins like a list"),
        ({"contexts": "<ArrowStringArray>\n['a', 'b']\nLength: 2, dtype: string"}, "begins like a list"),
        ({"retrieved_ids": "['a', ..., 'z']"}, "begins like a list"),
        ({"expected_output": {"answer": "x", "ideal": "y"}}, "reference: an object with answer, ideal"),
        ({"expected_output": {"score": 1}}, "reference: an object with score"),
        ({"expected_output": {}}, "reference: an object with nothing"),
        ({"expectations": {"expected_facts": ["x"]}}, "reference: an object with expected_facts"),
        ({"expected_output": 5}, "reference"),
        ({"input": [{"role": "user", "content": "q"}]}, "query"),
        ({"contexts": [{"title": "a"}]}, "text, content or page_content, not title"),
        ({"contexts": [None]}, "a context is a text"),
        ({"contexts": [5]}, "a context is a text"),
        ({"contexts": 5}, "contexts"),
        ({"contexts": [{"text": ["a"]}]}, "contexts"),
        ({"retrieved_ids": 5}, "retrieved_ids"),
        ({"history": "hello"}, "a turn has query and response"),
        ({"history": [5]}, "a turn has query and response"),
        ({"query": "q", "Query": "r"}, "both mean 'query'"),
        ({"expected_output": "x", "ideal": "y"}, "both mean 'reference'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(row: dict[str, Any], said: str) -> None:
    """Never half read: the field and the reason."""
    with pytest.raises(ValidationError, match=said):
        Case.model_validate(row)


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
