"""Content gaps: planted ones are found with their shares, others are not, and no text of few users is shown."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, open_store, uniform

from ragpulse_collector.cli import run
from ragpulse_collector.store.embedded import EmbeddedStore

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

SUBJECTS = {
    "password": ("reset", "change", "recover"), "parcel": ("track", "locate", "follow"),
    "invoice": ("download", "print", "find"), "printer": ("install", "repair", "connect"),
    "vacation": ("request", "book", "cancel"), "webhook": ("register", "debug", "retry"),
}  # fmt: skip
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
EACH = 60


def fill(
    store: EmbeddedStore,
    *,
    refused: dict[str, float],
    wrong: dict[str, float],
    users: Callable[[str, int], str],
    end: datetime = T0,
) -> None:
    """Store sixty questions of each subject; some are declined, some answers have no support."""
    units, rng, number = Units(store), random.Random(1), 0
    for subject, verbs in SUBJECTS.items():
        for turn in range(EACH):
            number += 1
            query = rng.choice(FRAMES).format(rng.choice(verbs), subject)
            declined = uniform(number) < refused.get(subject, 0.02)
            at = end - timedelta(minutes=number)
            answer = "refused" if declined else "answered"
            units.unit(number, at=at, query=query, user_id=users(subject, turn), answer=answer, top_score=0.8)
            units.contexts(number, [f"About {subject}.", "Welcome."], at=at, ids=[f"kb/{subject}.md", "kb/home.md"])
            units.decision(number, "groundedness", at=at)
            supported = uniform(number, "wrong") >= wrong.get(subject, 0.02)
            units.score(number, "groundedness", None if declined else float(supported), at=at,
                        status="skipped" if declined else "ok")  # fmt: skip
    units.save()


def rate(start: int, share: float, salt: str = "") -> float:
    """The share that fails of the sixty questions from a number on."""
    return sum(uniform(number, salt) < share for number in range(start, start + EACH)) / EACH


def many(subject: str, turn: int) -> str:
    """Twenty users of every subject."""
    return f"user-{turn % 20}"


def gaps(store: EmbeddedStore, **params: Any) -> Any:
    """The content of `GET gaps`."""
    return ask(store, "gaps", params, clock=lambda: T0, lead="groundedness")


def test_planted_gaps_are_found_and_nothing_else(store: EmbeddedStore) -> None:
    """One that is declined, one without support: each with its words, share, interval and nearest document."""
    fill(store, refused={"webhook": 0.6}, wrong={"printer": 0.5}, users=many)
    answer = gaps(store)
    assert [(gap["kind"], gap["nearest"]["id"]) for gap in answer["gaps"]] == [
        ("unanswered", "kb/webhook.md"), ("ungrounded", "kb/printer.md"),
    ]  # fmt: skip
    drawn = [rate(301, 0.6), rate(181, 0.5, "wrong")]
    for gap, word, planted in zip(answer["gaps"], ("webhook", "printer"), drawn, strict=True):
        assert word in gap["question"]
        assert word in gap["terms"][:3]
        assert gap["share"]["lo"] < 1 / len(SUBJECTS) < gap["share"]["hi"]
        assert gap["failing"]["lo"] < gap["failing"]["value"] == pytest.approx(planted, abs=0.02)
        assert 15 <= gap["users"] <= 20
        assert len(set(gap["trace_ids"])) >= 20
        assert f"### Missing content: {', '.join(gap['terms'])}\n\n{gap['text']}." in gap["issue"]
    assert "% unanswered; nearest document kb/webhook.md" in answer["gaps"][0]["text"]
    assert answer["questions"] == len(SUBJECTS) * EACH


@pytest.mark.parametrize(
    ("rates", "found"),
    [({}, 0), (dict.fromkeys(SUBJECTS, 0.5), 0), ({"webhook": 0.9, "vacation": 0.9}, 2)],
    ids=["nothing fails", "everything fails alike", "two gaps"],
)
def test_a_gap_fails_more_often_than_the_rest(store: EmbeddedStore, rates: dict[str, float], found: int) -> None:
    """What fails everywhere is no gap of the content."""
    fill(store, refused=rates, wrong={}, users=many)
    assert len(gaps(store)["gaps"]) == found


def test_words_of_few_users_are_not_shown(store: EmbeddedStore) -> None:
    """Four users who ask sixty times about one thing: no text of theirs."""
    fill(store, refused={"webhook": 0.9}, wrong={}, users=lambda subject, turn: f"{subject}-{turn % 4}")
    assert gaps(store)["gaps"] == []


def test_an_empty_store_and_few_failures_have_no_gap(store: EmbeddedStore) -> None:
    """Nothing to group: no error, and no model is loaded."""
    assert gaps(store) == {
        "gaps": [], "questions": 0, "collection": {"unretrieved": [], "competing": []},
    }  # fmt: skip


def test_hostile_questions_stay_text(store: EmbeddedStore) -> None:
    """A question cannot leave its quotation in Markdown."""
    units = Units(store)
    for number in range(40):
        query = "`](http://evil) webhook\n\n# secret `" if number < 20 else f"How do I track my parcel {number % 3}?"
        answer = "refused" if number < 20 else "answered"
        units.unit(number, query=query, user_id=f"user-{number % 10}", answer=answer, at=T0 - timedelta(hours=1))
    units.save()
    (gap,) = gaps(store)["gaps"]
    assert "`'](http://evil) webhook # secret '`" in gap["issue"]


def test_the_commands_print_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As sentences, CSV, Markdown or JSON; the digest counts them in a quiet week; a closed file is not written."""
    opened = open_store(tmp_path)
    fill(opened, refused={"webhook": 0.6}, wrong={}, users=many, end=datetime.now(UTC).replace(tzinfo=None))
    opened.close()
    file = ["--db", str(tmp_path / "test.duckdb")]
    printed = {}
    for form in ("text", "csv", "markdown"):
        assert run(["gaps", *file, "--format", form]) == 0
        printed[form] = capsys.readouterr().out
    assert "unanswered; nearest document kb/webhook.md" in printed["text"]
    (row,) = csv.DictReader(io.StringIO(printed["csv"]))
    assert (row["kind"], row["users"]) == ("unanswered", "20")
    assert printed["markdown"].startswith("### Missing content: ")
    assert run(["gaps", *file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gaps"][0]["kind"] == "unanswered"
    assert run(["digest", *file]) == 0
    assert "1 content gap: ragpulse gaps." in capsys.readouterr().out
    assert run(["gaps", *file, "--dataset", "missing"]) != 0


def test_the_collection_as_requests_show_it(store: EmbeddedStore) -> None:
    """Documents that only earlier requests found, and pairs that different questions mostly find together."""
    units = Units(store)
    for number in range(60):
        at = T0 - (timedelta(days=20) if number < 15 else timedelta(hours=1))
        names = ["kb/old.md", "kb/faq.md"] if number < 15 else ["kb/a.md", "kb/b.md"] if number < 40 else ["kb/faq.md"]
        units.unit(number, query=f"Question {number}?", at=at)
        units.contexts(number, names, ids=names, at=at)
    units.save()
    found = gaps(store)["collection"]
    assert [(one["id"], one["retrieved"]) for one in found["unretrieved"]] == [("kb/old.md", 15)]
    assert [(sorted(one["ids"]), one["questions"], one["share"]) for one in found["competing"]] == [
        (["kb/a.md", "kb/b.md"], 25, 1.0)
    ]
