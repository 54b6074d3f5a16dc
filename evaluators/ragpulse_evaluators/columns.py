"""Rows of other packages as fields of a case: the names of their columns, and lists and objects written as text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ragpulse_evaluators.errors import excerpt

COLUMNS = {
    **dict.fromkeys(("question", "user_input", "input", "inputs", "request"), "query"),
    **dict.fromkeys(("answer", "completion", "actual_output", "output"), "response"),
    **dict.fromkeys(
        ("ground_truth", "ground_truths", "expected", "expected_output", "expected_answer", "expected_response",
         "expectations", "ideal", "reference_answer", "reference_outputs"), "reference",
    ),
    **dict.fromkeys(("retrieved_contexts", "retrieval_context", "retrieved_context"), "contexts"),
    "retrieved_context_ids": "retrieved_ids",
    "reference_context_ids": "relevant_ids",
    "additional_metadata": "metadata",
    "tools_called": "trace",
}  # fmt: skip
"""Column names of other packages, and ours."""
_WEAK = {"context": "contexts", "reference_contexts": "reference"}
"""Expected passages of DeepEval and Ragas: a field where no other column is it, else a fact."""
_FACTS = frozenset((
    "id", "name", "comments", "source_file", "expected_tools", "custom_column_key_values",
    "synthesizer_name", "persona_name", "query_style", "query_length",
))  # fmt: skip
"""Columns of DeepEval, Ragas and data sets that go into the metadata."""
_BESIDE = {
    "references": ("contexts", {"actual_output", "expected_output"}),
    "outputs": ("response", {"expectations", "reference_outputs"}),
}
"""Columns that mean a field beside one of these: GroUSE's passages, and MLflow's answers, which LangSmith expects."""
_OBJECTS = ("relevant_ids", "history", "trace", "metadata")
_LISTS = ("contexts", "retrieved_ids", "reference", *_OBJECTS)
_ANSWERS = ("response", "reference")
_QUOTED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ARRAY = re.compile(rf"\barray\((.*?)(?:, dtype=[^()]+)?\)|\bnp\.str_\({_QUOTED}\)", re.DOTALL)
_BESIDE_QUOTED = re.compile(rf"{_QUOTED}\s+(?=['\"])|(?<=\d)\s+(?=[-\d][-\d\s]*\]$)", re.DOTALL)
_LIST_LIKE = re.compile(r"(?:\[\s*(?:['\"{]|[\w.]+\()|array\().*[\])]|<\w+Array>\s*\[.*", re.DOTALL)
"""A list that somebody wrote as text; a passage may begin with `[1]` or `[Note]`."""


def ours(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of a row under our names, and what the renamed columns became. A null is no fact.

    Raises ValueError for columns that contradict each other, and for values that cannot be read.
    """
    columns = [(_snake(name), name) for name, value in row.items() if not _is_null(value)]
    names = {name for name, _ in columns}
    fields: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, theirs in sorted(columns, key=lambda column: column[0] in _WEAK):
        meant, beside = _BESIDE.get(name, (None, ()))
        field = COLUMNS.get(name) or _WEAK.get(name, name)
        if meant and not names.isdisjoint(beside):
            field = meant
        if name in _FACTS or (name in _WEAK and field in fields):
            facts[theirs] = _read(field, row[theirs])
            continue
        value = _read(field, row[theirs])
        if field in fields and _as_list(fields[field]) != _as_list(value):
            other = next(source for source, meaning in sources.items() if meaning == field)
            raise ValueError(f"{other!r} and {theirs!r} both mean {field!r} and differ: keep one of them")
        fields.setdefault(field, value)
        sources[theirs] = field
    if facts and isinstance(fields.setdefault("metadata", {}), Mapping):
        fields["metadata"] = {**facts, **fields["metadata"]}
    renamed = {theirs: field for theirs, field in sources.items() if field != theirs}
    return fields, renamed | {name: f"metadata.{name}" for name in facts}


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


@lru_cache(maxsize=1024)
def _snake(name: str) -> str:
    return _CAMEL.sub("_", name).lower()


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _read(field: str, value: Any) -> Any:
    """The value of a field: lists and objects that were written as text, and the text of an answer in an object."""
    if isinstance(value, str) and field in _LISTS:
        return _written(field, value)
    if isinstance(value, Mapping) and field in ("query", *_ANSWERS):
        return _text_in(field, value)
    if field == "reference" and isinstance(value, list | tuple):
        return [_read("response", item) for item in value]
    return value


def _written(field: str, text: str) -> Any:
    """A list as JSON, Python or numpy write it, else the text; raises ValueError for a list that cannot be read."""
    stripped = text.strip()
    if not stripped.startswith(("[", "{", "(", "array(", "<")):
        return text
    try:
        value = json.loads(stripped)
        if field == "reference":  # an answer may be JSON
            return text
    except (ValueError, RecursionError):
        value = _literal(stripped)
    items = (str, Mapping) if field in ("contexts", "reference") else (str, int, float, Mapping, list, tuple)
    if isinstance(value, list | tuple | set) and all(isinstance(item, items) for item in value):
        return list(value)
    if isinstance(value, dict) and field in _OBJECTS:
        return value
    if _LIST_LIKE.fullmatch(stripped):
        raise ValueError(f"{field}: {excerpt(text, 40)!r} begins like a list that is neither JSON nor Python's")
    return text


def _literal(text: str) -> Any:
    """The value of a literal of Python, or of an array as numpy prints it; None where it is neither."""
    commas = _BESIDE_QUOTED.sub(r"\1, ", _ARRAY.sub(r"\1\2", text))  # Python would join the strings of an array
    try:
        return ast.literal_eval(commas)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _text_in(field: str, value: Mapping[str, Any]) -> str:
    """The one text of an object that is a question or an answer."""
    meant = (field,) if field == "query" else _ANSWERS
    keys = [key for key in value if key in ("text", "content") or COLUMNS.get(key, key) in meant]
    texts = {item for key in keys or (list(value) if len(value) == 1 else ()) if isinstance(item := value[key], str)}
    if len(texts) != 1:
        raise ValueError(f"{field}: an object with {', '.join(map(str, value)) or 'nothing'}; write the text alone")
    return texts.pop()
