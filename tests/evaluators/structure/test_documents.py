"""JSON, equal JSON and JSON Schema."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.structure import ENTRIES, difference

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def make(name: str, **params: object) -> Evaluator:
    """One evaluator of the family."""
    return next(entry for entry in ENTRIES if entry.name == name).factory(**params)


def verdict(name: str, response: str, reference: str | None = None, **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    return asyncio.run(make(name, **params)(Case(response=response, reference=reference)))


@pytest.mark.parametrize(
    ("response", "valid"),
    [
        ('{"a": 1}', True),
        ("null", True),
        ('{"答案": "是"}', True),
        ("{'a': 1}", False),
        ("NaN", False),
        ('{"a": Infinity}', False),
        ('{"a": 1} and more', False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_is_json_is_strict(response: str, valid: bool) -> None:
    """NaN and Infinity are no JSON, nor is JSON with talk around it, nor a bomb of brackets."""
    found = verdict("is_json", response)
    assert (found.status, found.passing, found.score) == ("ok", valid, float(valid))


def test_fenced_json_is_accepted_on_request_only() -> None:
    """Models like Markdown; a parser downstream may not."""
    fenced = 'Here:\n```json\n{"a": 1}\n```'
    assert verdict("is_json", fenced[6:]).passing is False
    assert verdict("is_json", fenced[6:], fenced=True).passing is True
    assert verdict("is_json", fenced, fenced=True).passing is False


@pytest.mark.parametrize(
    ("response", "reference", "same"),
    [
        ('{"a": null}', '{"a": null}', True),
        ("true", "1", False),
        ("1", "1.0", True),
        ('{"b": 2, "a": [1]}', '{"a":[1],"b":2}', True),
        ("[1, 2]", "[2, 1]", False),
        ("not json", "{}", False),
    ],
)
def test_json_match_keeps_types(response: str, reference: str, same: bool) -> None:
    """null equals null and true is not 1, where a peer says the contrary."""
    assert verdict("json_match", response, reference).passing is same


@settings(max_examples=40, deadline=None)
@given(values)
def test_json_match_of_a_value_with_itself_holds(value: object) -> None:
    """Any JSON value equals itself however it is laid out."""
    assert verdict("json_match", json.dumps(value, indent=2), json.dumps(value, sort_keys=True)).passing is True
    assert difference(value, value) is None


def test_json_match_names_the_first_difference() -> None:
    """The explanation is the place to look at."""
    found = verdict("json_match", '{"a": {"b": [1, 2]}}', '{"a": {"b": [1, 3]}}')
    assert found.explanation == "$.a.b[1] is 2, not 3"
    assert verdict("json_match", "{}", '{"a": 1}').explanation == "$.a is missing"


def test_deep_nesting_is_invalid_not_a_crash() -> None:
    """Deeper than can be compared, though it can be read."""
    deep = "[" * 900 + "]" * 900
    assert verdict("json_match", deep, deep).status in ("ok", "invalid")


def test_a_reference_that_is_no_json_is_invalid_not_a_failure() -> None:
    """The answer cannot be blamed for a broken reference."""
    assert verdict("json_match", "{}", "oops").status == "invalid"


def test_json_schema_names_the_broken_rule() -> None:
    """Place and rule in the explanation."""
    schema = {"type": "object", "properties": {"score": {"maximum": 5}}, "required": ["score"]}
    assert verdict("json_schema", '{"score": 4}', schema=schema).passing is True
    assert verdict("json_schema", '{"score": 9}', schema=schema).explanation == (
        "$.score: 9 is greater than the maximum of 5"
    )
    assert verdict("json_schema", "nope", schema=schema).score == 0.0


def test_a_schema_may_come_with_the_case() -> None:
    """Without a configured schema the reference is one; a broken one is invalid."""
    assert verdict("json_schema", "3", '{"type": "integer"}').passing is True
    assert verdict("json_schema", "3", '{"type": "whole"}').status == "invalid"
    assert verdict("json_schema", "3").status == "skipped"


def test_a_bad_schema_is_refused_when_configured() -> None:
    """Not at the thousandth case."""
    with pytest.raises(ConfigurationError, match="not a JSON Schema"):
        make("json_schema", schema={"type": "whole"})


def test_a_schema_never_reaches_for_the_network() -> None:
    """A reference to another document is invalid, not fetched."""
    found = verdict("json_schema", "{}", schema={"$ref": "http://127.0.0.1:9/schema.json"})
    assert found.status == "invalid"
    assert "another document" in (found.explanation or "")
