"""One table of document keys: a library's object reads the same in the SDK, the collector and the evaluators."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ragpulse import attributes
from ragpulse._reading.contexts import document
from ragpulse_collector.conventions.documents import documents
from ragpulse_collector.conventions.rules import BareSpan
from ragpulse_collector.store import views
from ragpulse_evaluators import Case, case


def test_the_evaluators_table_is_the_sdks() -> None:
    """The packages must not import each other, and the store starts without the SDK, so each has the keys."""
    assert case.TEXT_KEYS == attributes.DOCUMENT_TEXT_KEYS
    assert case.ID_KEYS == attributes.DOCUMENT_ID_KEYS
    assert case.SOURCE_KEYS == views.SOURCE_KEYS == attributes.DOCUMENT_SOURCE_KEYS


@pytest.mark.parametrize("text_key", attributes.DOCUMENT_TEXT_KEYS)
@pytest.mark.parametrize("id_key", attributes.DOCUMENT_ID_KEYS)
def test_every_key_is_read_by_all_three(text_key: str, id_key: str) -> None:
    """As a dict on the way through the SDK and as JSON by the collector, as an object by the evaluators."""
    item = {text_key: "The key is under the mat.", id_key: "d1"}
    recorded = document(item)
    found = documents(json.dumps([item]), BareSpan())
    assert found is not None
    (context,) = found.value
    (seen,) = Case(contexts=[SimpleNamespace(**item)]).contexts or ()  # type: ignore[arg-type]
    read = [(recorded.id, recorded.text), (context.id, context.text), (seen.id, seen.text)]
    assert read == [("d1", "The key is under the mat.")] * 3


@pytest.mark.parametrize("key", attributes.DOCUMENT_SCORE_KEYS)
def test_every_score_key_is_read_by_sdk_and_collector(key: str) -> None:
    """A score of any library."""
    item = {"text": "The key is under the mat.", key: 0.5}
    found = documents(json.dumps([item]), BareSpan())
    assert found is not None
    assert (document(item).score, found.value[0].score) == (0.5, 0.5)
