"""The cascade through a whole collector: traces in, checks on all of them, more questions about the doubtful ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from test_pipeline import until
from traffic import rag_trace, send

from ragpulse_collector.client import ClientError, connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


def test_an_ungrounded_answer_is_looked_at_again(collector: Callable[..., Collector]) -> None:
    """A rule over the API names a score of the built-in checks; only the answer they doubt gets its evaluator."""
    client = connect(collector().url)
    strata = [{"where": "score.groundedness < 0.5", "rate": 1.0}]
    rule = {"name": "doubtful", "evaluators": ["latency"], "rate": 0.0, "strata": strata}
    assert client.call("POST rules", rule)["strata"] == strata
    send(client.url, rag_trace(1) + rag_trace(2, response="Bananas ripen slowly in Norwegian winters."))
    until(client, "SELECT * FROM scores WHERE evaluator = 'groundedness'", 2)
    [scored] = until(client, "SELECT trace_id, pi FROM scores WHERE evaluator = 'latency'", 1)
    assert (scored["trace_id"], scored["pi"]) == (f"{3:032x}", 1.0)
    preview = client.call("GET rules/preview", rule | {"strata": json.dumps(strata)})
    assert preview["selected_per_day"] == pytest.approx(1 / 7)
    assert preview["uncovered_share"] == 0.5


def test_a_stratum_that_names_no_evaluator_is_refused(collector: Callable[..., Collector]) -> None:
    """A misspelt score would never hold, and nobody would notice."""
    client = connect(collector().url)
    strata = [{"where": "score.groundednes < 0.5", "rate": 1.0}]
    with pytest.raises(ClientError, match="did you mean 'groundedness'"):
        client.call("POST rules", {"name": "doubtful", "evaluators": ["latency"], "rate": 0.0, "strata": strata})
