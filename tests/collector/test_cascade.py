"""The cascade through a whole collector: traces in, checks on all of them, more questions about the doubtful ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stored_units import Units, open_store, uniform
from test_pipeline import until
from traffic import rag_trace, send

from ragpulse_collector.client import ClientError, connect
from ragpulse_evaluators.statistics import assisted_mean, hajek

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


def test_the_guides_query_feeds_the_assisted_mean(tmp_path: Path) -> None:
    """Of 1,000 checked answers a fourth are judged, doubtful ones more often: narrower, and the truth inside."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(1000):
        check, good = uniform(number, "check"), float(uniform(number, "check") + 0.4 * uniform(number, "judge") > 0.5)
        pi = 0.4 if check < 0.5 else 0.1
        units.decision(number, "groundedness")
        units.score(number, "groundedness", check)
        if units.decision(number, "faithfulness", pi=pi):
            units.score(number, "faithfulness", good)
    units.save()
    guide = (Path(__file__).parents[2] / "docs" / "quality.md").read_text(encoding="utf-8")
    [query] = [text for text in re.findall(r"```sql\n(.*?)```", guide, re.DOTALL) if "LEFT JOIN scores" in text]
    values, checks, chances = zip(*store.read(query).rows, strict=True)
    judged = [(value, pi) for value, pi in zip(values, chances, strict=True) if value is not None]
    plain = hajek([value for value, _ in judged], [pi for _, pi in judged])
    found = assisted_mean(values, checks, chances)
    assert plain is not None
    assert found is not None
    assert (found.n, found.n_all) == (len(judged), 1000)
    assert (found.lo or 0) < 0.7 < (found.hi or 0)
    assert found.narrowing < 0.8
    assert (found.hi or 0) - (found.lo or 0) < 0.8 * ((plain.hi or 0) - (plain.lo or 0))
    store.close()
