"""A range read again from what was known equals one read anew, whatever came or went in between."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stored_units import T0, Units, open_store, trace_id

from ragpulse_collector.analysis.cache import read_again
from ragpulse_collector.analysis.filters import Filter
from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.window import Window
from ragpulse_collector.store.embedded import EmbeddedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def _window(minute: int) -> Window:
    """Four hours in buckets of ten minutes, ending at this minute."""
    last = T0 + timedelta(minutes=minute)
    return Window(last - timedelta(hours=4), last, 600)


class Counted:
    """A store that keeps the range of each question."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.ranges: list[timedelta] = []

    def read(self, sql: str, params: Any = ()) -> Any:
        """Ask the store."""
        if "min(request_time)" in sql:
            self.ranges.append(params["last"] - params["first"])
        return self._store.read(sql, params)


def _redecide(store: EmbeddedStore, number: int, pi: float) -> None:
    """A late fact: the same unit with another chance, the old row kept."""
    which = "evaluator = 'judge' AND trace_id = $trace::UUID"
    columns = "EXCLUDE (pi, revision, latest, decided_at), $pi AS pi, revision + 1 AS revision, NULL AS latest"
    named = {"trace": trace_id(number)}

    def work(tx: Any) -> None:
        tx.execute(
            f"INSERT INTO raw.decisions BY NAME SELECT * {columns}, decided_at + INTERVAL 1 SECOND AS decided_at"
            f" FROM raw.decisions WHERE latest AND {which}",
            named | {"pi": pi},
        )
        tx.execute(
            f"UPDATE raw.decisions SET latest = latest IS NULL WHERE (latest OR latest IS NULL) AND {which}", named
        )

    store.write(work).result()


def _counts(buckets: Sequence[Bucket]) -> list[Bucket]:
    return [replace(one, moments=None, passed=0.0, called=0.0, missing=0.0) for one in buckets]


def _sums(buckets: Sequence[Bucket]) -> list[float]:
    sums = [value for one in buckets if one.moments is not None for value in astuple(one.moments)]
    return sums + [value for one in buckets for value in (one.passed, one.called, one.missing)]


@pytest.mark.parametrize("seed", range(3))
def test_a_range_read_again_equals_one_read_anew(store: EmbeddedStore, seed: int) -> None:
    """New verdicts, late ones, errors retried, chances decided anew, deletions, a moving window."""
    chance, units, reading = random.Random(seed), Units(store), None
    for step in range(8):
        for number in range(40 * step, 40 * step + chance.randrange(5, 40)):
            at = T0 + timedelta(minutes=chance.randrange(-240, 5 * step + 1))
            status = chance.choice(["ok", "ok", "ok", "error"])
            value = chance.random() if status == "ok" else None
            if number % 7 == 0:  # a cap left it out
                units.unit(number, at=at)
                units.add("decisions", trace_id=trace_id(number), span_id=0xAA, request_time=at, evaluator="judge",
                          pi=0.5, u=chance.choice([0.2, 0.8]), sampled=False, reason="budget", decided_at=at,
                          revision=0, latest=True)  # fmt: skip
            else:
                units.scored(number, chance.choice(["judge", "other"]), value, at=at, pi=1.0, status=status)
        units.save()
        if step:
            _redecide(store, chance.randrange(40 * step), chance.choice([0.3, 0.9]))
        if step == 5:
            gone = {"at": T0 - timedelta(minutes=150)}
            store.write(
                lambda tx, gone=gone: tx.execute("DELETE FROM raw.scores WHERE request_time < $at", gone)
            ).result()
        window = _window(5 * step)
        reading = read_again(store, window, reading)
        anew = estimates(store, None, window, Filter())
        assert _counts(reading.buckets) == _counts(anew)
        assert _sums(reading.buckets) == pytest.approx(_sums(anew), abs=1e-9)  # threads add up in any order


def test_only_what_moved_is_read(store: EmbeddedStore) -> None:
    """After one more verdict the questions are about its bucket and the one that the window cuts."""
    units, counted = Units(store), Counted(store)
    for number in range(240):
        units.scored(number, "judge", 1.0, at=T0 - timedelta(minutes=number))
    units.save()
    known = read_again(counted, _window(1), None)  # type: ignore[arg-type]
    units.scored(999, "judge", 0.0, at=T0)
    units.save()
    again = read_again(counted, _window(2), known)  # type: ignore[arg-type]
    assert sum(bucket.moments.n for bucket in again.buckets if bucket.moments) in (239, 240)
    assert counted.ranges[0] == timedelta(hours=4)
    assert sum(counted.ranges[1:], timedelta()) <= timedelta(minutes=20)


def test_a_replay_under_way_has_everything_read(store: EmbeddedStore) -> None:
    """How much of it is done weighs on all that it scored; once it is done, ranges are patched together again."""
    units, counted, reading = Units(store), Counted(store), None
    for number in range(240):
        units.scored(number, "judge", 1.0, at=T0 - timedelta(minutes=number))
    run = {"run_id": "r", "evaluator": "judge", "version": "v1", "spec": "{}", "total": 240}
    asked = []
    for step, status in enumerate(("", "running", "done", "", "")):
        if status:
            units.add("runs", **run, status=status, created_at=T0 + timedelta(seconds=step))
        units.save()
        counted.ranges.clear()
        reading = read_again(counted, _window(1), reading)  # type: ignore[arg-type]
        asked.append(sum(counted.ranges, timedelta()))
        assert _sums(reading.buckets) == pytest.approx(_sums(estimates(store, None, _window(1), Filter())), abs=1e-9)
    assert asked[0] == asked[1] == timedelta(hours=4)
    assert asked[-1] == timedelta()
