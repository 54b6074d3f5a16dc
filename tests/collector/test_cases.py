"""Cases: what an evaluator sees of a stored unit, found without reading what was stored around it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from stored_units import SPAN_ID, T0, Units, open_store, trace_id

from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.units.cases import Unit, case_of, cases_of
from ragpulse_collector.units.keys import ScoreKeys, score_key
from ragpulse_evaluators import get_evaluator


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("minutes", [0, 10, 600])
def test_contexts_are_found_however_late_they_were_retrieved(store: EmbeddedStore, minutes: int) -> None:
    """A span far from its unit is looked for where fewer are near than the trace had when it was decided."""
    units = Units(store)
    units.unit(1)
    units.contexts(1, ["the passage"], at=T0 + timedelta(minutes=minutes))
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.trace_facts SET n_spans = 2")).result()
    case = case_of(store, trace_id(1), SPAN_ID, request_time=T0)
    assert case is not None
    assert case.texts == ("the passage",)
    assert case == case_of(store, trace_id(1), SPAN_ID)


def test_many_cases_are_those_of_their_units(store: EmbeddedStore) -> None:
    """Each unit gets its own texts; one that is gone is absent."""
    units = Units(store)
    for number in range(5):
        units.unit(number, at=T0 + timedelta(minutes=number), response=f"answer {number}")
    units.save()
    wanted = [Unit(trace_id(number), SPAN_ID, T0 + timedelta(minutes=number)) for number in (4, 7, 2)]
    found = cases_of(store, wanted)
    assert {unit.trace_id: case.response for unit, case in found.items()} == {
        trace_id(4): "answer 4",
        trace_id(2): "answer 2",
    }


def test_keys_of_a_batch_are_those_of_single_cases(store: EmbeddedStore) -> None:
    """A digest is shared only by evaluators that see the same of a case."""
    units = Units(store)
    units.unit(1)
    units.save()
    unit = Unit(trace_id(1), SPAN_ID, T0)
    case, keys = cases_of(store, [unit])[unit], ScoreKeys()
    evaluators = [get_evaluator(name) for name in ("latency", "refusal", "citation_check")]
    assert [keys(unit, case, one) for one in evaluators] == [score_key(unit, case, one) for one in evaluators]
    assert len({keys(unit, case, one) for one in evaluators}) == 3
