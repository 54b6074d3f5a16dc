"""Perplexity of recorded log-probabilities."""

from __future__ import annotations

import asyncio
import math

import pytest

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.text import ENTRIES


@pytest.mark.parametrize("recorded", [[-1.0, -3.0], {"content": [{"token": "a", "logprob": -1.0}, {"logprob": -3.0}]}])
def test_perplexity_of_recorded_log_probabilities(recorded: object) -> None:
    """exp(2), from plain numbers or as OpenAI lists them; without a 0..1 form."""
    made = next(entry for entry in ENTRIES if entry.name == "perplexity").factory()
    found = asyncio.run(made(Case(response="x", metadata={"logprobs": recorded})))
    assert found.score == pytest.approx(math.exp(2))
    assert found.normalized is None


@pytest.mark.parametrize(
    ("recorded", "status"), [(None, "skipped"), ([], "skipped"), ([0.5], "invalid"), (["a"], "invalid")]
)
def test_perplexity_never_invents(recorded: object, status: str) -> None:
    """Nothing recorded is skipped; positive or unreadable values are invalid."""
    made = next(entry for entry in ENTRIES if entry.name == "perplexity").factory()
    assert asyncio.run(made(Case(metadata={"logprobs": recorded}))).status == status
