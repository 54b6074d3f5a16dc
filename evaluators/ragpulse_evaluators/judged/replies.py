"""Shapes of structured replies, and readers that try the shape first and the strict token parser second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.judges.parsing import LANGUAGES, Words, json_objects, read_model, read_verdict, words_of

__all__ = ("Reason", "Verdict", "YesNo", "either", "rest_of", "verdict_reader")

Model = TypeVar("Model", bound=BaseModel)


def _yes_or_no(value: Any) -> Any:
    """Read a yes or no in any language we have prompts for; leave the rest to the schema."""
    if not isinstance(value, str):
        return value
    for language in LANGUAGES:
        try:
            return read_verdict(value, words_of(language))
        except Unreadable:
            continue
    return value


YesNo = Annotated[bool, BeforeValidator(_yes_or_no)]
"""A bool that judges also write as 1, 0, "YES", "否", "sim"."""
Reason = Annotated[
    str,
    Field(validation_alias=AliasChoices("reason", "reasoning", "feedback", "justification", "explanation", "comment")),
]
"""The judge's words; every name that the seeds' judges use for them is accepted."""


class Verdict(BaseModel):
    """`{"reason": "...", "verdict": "YES"}`."""

    reason: Reason = ""
    verdict: Annotated[YesNo, Field(validation_alias=AliasChoices("verdict", "passing", "answer", "score"))]


def rest_of(text: str) -> str:
    """The reasoning of a reply whose first line is the verdict; the whole reply where there is but one line."""
    first, _, rest = text.strip().partition("\n")
    return rest.strip() or first.strip()


def either(schema: type[Model], plain: Callable[[str], Model]) -> Callable[[str], Model]:
    """A reader: the schema when the reply holds any JSON object, else `plain`."""
    return lambda text: read_model(text, schema) if json_objects(text) else plain(text)


def verdict_reader(words: Words) -> Callable[[str], Verdict]:
    """Reads a yes or no with its reason, as JSON or as first word."""
    return either(Verdict, lambda text: Verdict(verdict=read_verdict(text, words), reason=rest_of(text)))
