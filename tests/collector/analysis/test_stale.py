"""Documents by age: dates as people write them, old documents that do damage, texts that changed under one id."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, open_store

from ragpulse_collector.analysis.why.ages import changed_at
from ragpulse_collector.store.embedded import EmbeddedStore

NOW = datetime(2026, 11, 28)
DAY = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T12:00:00Z"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    with closing(open_store(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"updated_at": "2024-01-02T03:04:05Z"}, "2024-01-02T03:04:05"),
        ({"updatedAt": "2024-01-02T03:04:05+02:00"}, "2024-01-02T01:04:05"),
        ({"last_modified": "Tue, 02 Jan 2024 03:04:05 GMT"}, "2024-01-02T03:04:05"),
        ({"last_modified": "Tue, 02 Jan 2024 03:04:05 -0500"}, "2024-01-02T08:04:05"),
        ({"last_modified_date": "2024-01-02"}, "2024-01-02T00:00:00"),
        ({"lastModified": "20240102"}, "2024-01-02T00:00:00"),
        ({"modified": 1704164645}, "2024-01-02T03:04:05"),
        ({"mtime": 1704164645.5}, "2024-01-02T03:04:05.500000"),
        ({"modifiedTime": 1704164645000}, "2024-01-02T03:04:05"),
        ({"modified_at": "1704164645"}, "2024-01-02T03:04:05"),
        ({"updated": "2024/01/02"}, "2024-01-02T00:00:00"),
        ({"updated": "January 2, 2024"}, "2024-01-02T00:00:00"),
        ({"updated": "2 Jan 2024"}, "2024-01-02T00:00:00"),
        ({"updated": "02.01.2024"}, "2024-01-02T00:00:00"),
        ({"LAST_EDITED_TIME": "2024-01-02 03:04:05 UTC"}, "2024-01-02T03:04:05"),
        ({"updated_at": "soon", "mtime": 1704164645}, "2024-01-02T03:04:05"),  # what cannot be read says nothing
        ({"updated": "01/02/2024"}, None),  # January or February
        ({"updated_at": "2099-01-01"}, None),
        ({"updated_at": "0001-01-01"}, None),
        ({"updated_at": "yesterday"}, None),
        ({"updated_at": True}, None),
        ({"updated_at": {"a": 1}}, None),
        ({"updated_at": "9" * 10_000}, None),
        ({"updated_at": float("1e308")}, None),
        ({"created_at": "2024-01-02", "indexed_at": "2024-01-02"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_date_in_metadata(metadata: Any, expected: str | None) -> None:
    """UTC where no zone is stated; unknown where it is not certain, and never new."""
    found = changed_at(json.dumps(metadata), NOW)
    assert (found and found.isoformat()) == expected


def test_a_field_that_is_named_is_the_only_one() -> None:
    """`[documents] updated_at = "reviewed"`."""
    metadata = json.dumps({"updated_at": "2024-01-02", "reviewed": "2025-01-02"})
    assert changed_at(metadata, NOW, "reviewed") == datetime(2025, 1, 2)
    assert changed_at(metadata, NOW, "absent") is None
    assert changed_at("no JSON", NOW) is changed_at("[" * 100_000, NOW) is changed_at(None, NOW) is None


def plant(store: EmbeddedStore, outdated: set[int], *, seed: int = 1, n: int = 4_000, documents: int = 500) -> None:
    """Requests that rest on two of 500 documents of ten topics; those with an outdated one fail twice as often."""
    units, draw = Units(store), random.Random(seed)
    for number in range(n):
        found = [draw.randrange(documents) for _ in range(2)]
        topic = found[0] % 10
        hard = 0.1 + 0.03 * topic  # questions of some topics are harder, whatever they find
        bad = draw.random() < (0.75 if outdated & set(found) else hard)
        at = T0 + timedelta(seconds=number)
        facts = {"topic": f"t{topic}", "query": f"q{number % 900}"}
        units.scored(number, "check", 0.1 if bad else 0.95, at=at, facts=facts)
        old = [one in outdated or one % 25 == 3 for one in found]  # others are old and right
        ages = [700 + one if is_old else 5 + one // 2 for one, is_old in zip(found, old, strict=True)]
        metadata = [json.dumps({"updated_at": (T0 - timedelta(days=age)).isoformat()}) for age in ages]
        units.contexts(number, ["text"] * 2, ids=[f"doc{one}" for one in found], at=at, metadata=metadata)
    units.save()


def stale(store: EmbeddedStore, **more: Any) -> list[Any]:
    """The documents that do damage, the worst first."""
    asked = {"evaluator": "check", "sort": "stale", **DAY, **more}
    return list(ask(store, "documents", asked, clock=lambda: T0 + timedelta(days=1))["documents"])


def test_outdated_documents_come_first(store: EmbeddedStore) -> None:
    """20 of 500, beside 20 that are as old and right; their topics are not blamed."""
    outdated = set(range(0, 500, 25))
    plant(store, outdated)
    found = stale(store, limit=10)
    assert len(found) == 10
    right = sum(int(one["id"].removeprefix("doc")) in outdated for one in found)
    assert right >= 9
    assert all(one["damage"] > 0 and one["updated_at"] < "2025" for one in found)


def test_without_ages_nothing_is_stale(store: EmbeddedStore) -> None:
    """Unknown is never new and never old."""
    units = Units(store)
    for number in range(60):
        at = T0 + timedelta(seconds=number)
        units.scored(number, "check", 0.1 if number % 3 else 0.9, at=at)
        units.contexts(number, ["text"], ids=["bad" if number % 3 else "good"], at=at)
    units.save()
    assert stale(store) == []
    listed = ask(store, "documents", {"evaluator": "check", **DAY}, clock=lambda: T0 + timedelta(days=1))["documents"]
    assert {one["updated_at"] for one in listed} == {None}


@pytest.mark.parametrize(("mixed", "rewritten"), [(False, True), (True, False)])
def test_a_text_that_changed_under_one_id_is_a_new_version(store: EmbeddedStore, mixed: bool, rewritten: bool) -> None:
    """With the quality before and after; two passages of one file that are both in use are no change."""
    units = Units(store)
    for number in range(80):
        new = number % 2 == 1 if mixed else number >= 40
        at = T0 + timedelta(seconds=number)
        units.scored(number, "check", 0.2 if new else 0.9, at=at, facts={"user_id": f"u{number}"})
        units.contexts(number, ["new text" if new else "old text"], ids=["guide.md"], at=at)
    units.save()
    (listed,) = ask(store, "documents", {"evaluator": "check", **DAY}, clock=lambda: T0 + timedelta(days=1))[
        "documents"
    ]
    assert (listed["rewritten"] is not None) == rewritten
    if rewritten:
        told = listed["rewritten"]
        assert (told["before"]["value"], told["after"]["value"]) == (pytest.approx(0.9), pytest.approx(0.2))
        assert (told["before"]["n"], told["after"]["n"]) == (40, 40)
        assert told["before"]["lo"] > told["after"]["hi"]
