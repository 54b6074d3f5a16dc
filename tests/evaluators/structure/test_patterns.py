"""Regular expressions within a time limit, and form as a whole."""

from __future__ import annotations

import asyncio

import pytest

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.structure import ENTRIES


def make(name: str, **params: object) -> Evaluator:
    """One evaluator of the family."""
    return next(entry for entry in ENTRIES if entry.name == name).factory(**params)


def verdict(name: str, response: str, reference: str | None = None, **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    return asyncio.run(make(name, **params)(Case(response=response, reference=reference)))


def test_regex_modes_and_flags() -> None:
    """Anywhere by default; at the start or as a whole on request."""
    assert verdict("regex", "born in 1967", pattern=r"\d{4}").passing is True
    assert verdict("regex", "born in 1967", pattern=r"\d{4}", mode="match").passing is False
    assert verdict("regex", "1967", pattern=r"\d{4}", mode="fullmatch").passing is True
    assert verdict("regex", "PARIS", pattern="paris", ignore_case=True).passing is True
    assert verdict("regex", "PARIS", "paris|PARIS").passing is True


def test_a_bad_pattern_is_a_configuration_error() -> None:
    """Refused at once; coming with a case it makes that case invalid."""
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        make("regex", pattern="(")
    assert verdict("regex", "x", "(").status == "invalid"


def test_a_catastrophic_pattern_is_stopped() -> None:
    """Exponential backtracking, of years, ends at the time limit as invalid."""
    found = verdict("regex", "a" * 40 + "!", pattern=r"^(a|aa|a?)+$", timeout_s=0.05)
    assert found.status == "invalid"


def test_format_adherence_is_json_schema_or_pattern() -> None:
    """One name for the three usual formats; never two at once."""
    assert verdict("format_adherence", "{}").passing is True
    assert verdict("format_adherence", "12 EUR", pattern=r"\d+ EUR").passing is True
    assert verdict("format_adherence", "about 12 EUR", pattern=r"\d+ EUR").passing is False
    assert verdict("format_adherence", "[]", schema={"type": "object"}).evaluator == "format_adherence"
    with pytest.raises(ConfigurationError, match="not both"):
        make("format_adherence", pattern="x", schema={})


def test_parameters_are_part_of_the_version() -> None:
    """Another pattern or schema is another series."""
    assert make("regex", pattern="a").version != make("regex", pattern="b").version
    assert make("json_schema", schema={}).version != make("json_schema", schema={"type": "object"}).version
    assert make("regex", pattern="a").version == make("regex", pattern="a").version


@pytest.mark.parametrize("name", ["regex", "format_adherence"])
def test_an_empty_pattern_is_refused(name: str) -> None:
    """It would match every answer; as a case's reference it makes the result invalid."""
    with pytest.raises(ConfigurationError, match="empty regular expression"):
        make(name, pattern="")
    assert name != "regex" or verdict(name, "x", reference="x").passing is True
