"""The tables of topics: a trace gets its topic as it is decided, a later fit changes it, names are the same everywhere.

These pass over a lake, too (test_lake_contract.py). Topics are found by a word here: topics/ has the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from ragpulse_collector.refusals import Conflict, NotFound
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.settings import Stratum
from ragpulse_collector.store import topics as stored
from ragpulse_collector.store.retention import forget
from ragpulse_collector.topics.forgetting import forget_texts

WORDS = {"refund": 1, "parcel": 2}
ASKED = {
    "ann": ("Where is my refund?", "refund for Zanzibar"),
    "bob": ("where is my  REFUND", "Why no parcel?"),
    "cem": ("Where is my refund!", "What is the weather?"),
}


def topic(number: int, name: str, **more: Any) -> stored.StoredTopic:
    """A topic of the first fit."""
    fields: dict[str, Any] = {"topic_id": number, "fit_id": 1, "first_fit": 1, "name": name, "named_by": None,
                              "question": None, "question_users": 0, "terms": [], "term_users": [], "size": 3,
                              "share_before": None, "centre": [0.5, 0.5]}  # fmt: skip
    return stored.StoredTopic(**fields | more)


def fit(number: int, **more: Any) -> stored.TopicFit:
    """A fit that found two topics."""
    fields: dict[str, Any] = {"fit_id": number, "fitted_at": datetime(2026, 3, 1), "questions": 6, "other": 1,
                              "last_id": 2, "embedder": "static", "least_users": 2, "assigned_from": None}  # fmt: skip
    return stored.TopicFit(**fields | more)


DISTANCES = (0.75, 0.25, 0.125)
"""The distance of a question by its topic: other, refund, parcel."""


def topics_of(questions: Sequence[str]) -> list[stored.PlacedQuestion]:
    """The topic of each question by its first known word, and its distance by the topic."""
    topics = [next((WORDS[word] for word in WORDS if word in text.casefold()), 0) for text in questions]
    return [stored.PlacedQuestion(topic, DISTANCES[topic]) for topic in topics]


REFUND = topic(1, "refund, money", terms=["refund", "zanzibar"], term_users=[3, 2], question="Where is my refund?",
               question_users=3)  # fmt: skip


@pytest.fixture
def store(kit: Any) -> Any:
    """A store with a fit and six decided questions of three users."""
    opened = kit.store()
    opened.write(lambda tx: stored.add_fit(tx, fit(1), [REFUND, topic(2, "parcel")])).result(60)
    number = 0
    for user, questions in ASKED.items():
        for text in questions:
            number += 1
            kit.send(opened, kit.span(number, kind="rag", query=text, user_id=user, trace_id=f"{number:032x}"))
    assert decide(opened, kit) == 6
    return opened


def test_a_fit_reads_at_most_a_tenth_from_one_user(store: Any, kit: Any) -> None:
    """Who floods a service with questions makes no topics of it."""
    kit.send(
        store,
        *(kit.span(1, kind="rag", query=f"Flood {n}?", user_id="f", trace_id=f"{n:032x}") for n in range(100, 130)),
    )
    assert decide(store, kit) == 30
    read = stored.asked(store.read, datetime(2000, 1, 1), 40)
    assert (len(read), sum(one.question.startswith("Flood") for one in read)) == (10, 4)


def decide(store: Any, kit: Any, **options: Any) -> int:
    """Decide what is due with the topics of this module."""
    options = {"topics": lambda: topics_of} | options
    return Sampler(store, **options).decide(kit.later(60))


def topics_in(rows: Callable[..., Any], store: Any) -> dict[str, str | None]:
    """The topic of each question, as the view shows it."""
    return dict(rows(store, "SELECT query, topic FROM traces"))


def test_a_trace_gets_its_topic_as_it_is_decided(kit: Any, rows: Any, store: Any) -> None:
    """By name; `other` for none; before its decision, and without a fit, it has none."""
    found = topics_in(rows, store)
    assert [found[text] for text in ASKED["ann"]] == ["refund, money"] * 2
    assert [found[text] for text in ASKED["bob"]] == ["refund, money", "parcel"]
    assert found["What is the weather?"] == "other"
    kit.send(store, kit.span(7, kind="rag", query="My parcel", trace_id=f"{7:032x}"))
    kit.send(store, kit.span(8, kind="rag", trace_id=f"{8:032x}"))
    assert topics_in(rows, store)["My parcel"] is None
    decide(store, kit, topics=lambda: None)
    assert rows(store, "SELECT DISTINCT topic FROM traces WHERE topic IS NULL OR query IS NULL") == [(None,)]


def distances_in(rows: Callable[..., Any], store: Any) -> dict[str, float | None]:
    """The distance of each question, as the view shows it."""
    return dict(rows(store, "SELECT query, question_distance FROM traces"))


def test_a_trace_gets_the_distance_of_its_question_as_it_is_decided(kit: Any, rows: Any, store: Any) -> None:
    """Of other questions, too; none before its decision, without a fit and without a question; a revision has it."""
    kit.send(store, kit.span(7, kind="rag", query="My parcel", trace_id=f"{7:032x}"))
    found = distances_in(rows, store)
    expected = {"Where is my refund?": 0.25, "Why no parcel?": 0.125, "What is the weather?": 0.75, "My parcel": None}
    assert {text: found[text] for text in expected} == expected
    decide(store, kit, topics=lambda: None)
    kit.send(store, kit.span(8, kind="rag", trace_id=f"{8:032x}"))
    kit.send(store, kit.span(31, 1, "llm", trace_id=f"{1:032x}"))
    assert decide(store, kit) == 2
    found = distances_in(rows, store)
    assert (found["My parcel"], found[None], found["Where is my refund?"]) == (None, None, 0.25)


def test_a_new_fit_changes_distances_also_where_the_topic_stays(rows: Any, store: Any) -> None:
    """A centre that moved is nearer or farther; NULL is filled; questions of no batch keep theirs."""
    store.write(lambda tx: stored.add_fit(tx, fit(2), [topic(2, "parcel", fit_id=2)])).result(60)
    clear = "UPDATE raw.trace_facts SET question_distance = NULL WHERE topic = 'parcel'"
    store.write(lambda tx: tx.execute(clear)).result(60)
    batch = stored.questions_before(store.read, datetime(2027, 1, 1), datetime(2025, 1, 1), 3)
    placed = [stored.PlacedQuestion(2 if "parcel" in one.question else 0, 0.375) for one in batch]
    assert store.write(lambda tx: stored.assign_again(tx, 2, batch, placed)).result(60)
    found, topics = distances_in(rows, store), topics_in(rows, store)
    assert {found[one.question] for one in batch} == {0.375}
    assert (topics["Why no parcel?"], topics["What is the weather?"]) == ("parcel", "other")
    assert {found[text] for text in ASKED["ann"]} == {0.25}


def test_a_topic_is_a_stratum_of_a_rule(kit: Any, rows: Any, store: Any) -> None:
    """The probability of a question depends on its topic as the rule says."""
    rule = Rule(name="r", evaluators=("refusal",), rate=0.25, strata=(Stratum(where="topic = 'parcel'", rate=1.0),))
    for number, text in ((11, "another parcel"), (12, "another refund")):
        kit.send(store, kit.span(number, kind="rag", query=text, trace_id=f"{number:032x}"))
    decide(store, kit, rules=lambda: [rule])
    pis = "SELECT t.topic, d.pi FROM decisions d JOIN traces t USING (trace_id) WHERE d.rule = 'r' ORDER BY ALL"
    assert rows(store, pis) == [("parcel", 1.0), ("refund, money", 0.25)]


def test_a_topic_of_a_late_trace_stays(kit: Any, rows: Any, store: Any) -> None:
    """A revision of the facts has the topic, too."""
    kit.send(store, kit.span(31, 1, "llm", trace_id=f"{1:032x}"))
    assert decide(store, kit) == 1
    assert topics_in(rows, store)["Where is my refund?"] == "refund, money"


def test_a_topic_is_renamed_everywhere(rows: Any, store: Any) -> None:
    """In its traces at once; no two topics have one name, in any case, and none is called other."""
    renamed = store.write(lambda tx: stored.rename(tx, 1, "Money back", actor="ann")).result(60)
    assert (renamed.name, renamed.named_by) == ("Money back", "ann")
    assert set(topics_in(rows, store).values()) == {"Money back", "parcel", "other"}
    for name in ("PARCEL", "Other"):
        with pytest.raises(Conflict, match="another topic"):
            store.write(lambda tx, name=name: stored.rename(tx, 1, name, actor="ann")).result(60)
    with pytest.raises(NotFound):
        store.write(lambda tx: stored.rename(tx, 9, "x", actor="ann")).result(60)
    assert rows(store, "SELECT actor, action FROM raw.audit") == [("ann", "rename topic")]


def test_topics_of_a_new_fit_are_assigned_in_batches(rows: Any, store: Any) -> None:
    """Latest first, as far as the fit says; a fit that another one replaced assigns nothing more."""
    store.write(lambda tx: stored.add_fit(tx, fit(2, last_id=3), [topic(3, "weather", fit_id=2, first_fit=2)])).result(
        20
    )
    last, first = datetime(2027, 1, 1), datetime(2025, 1, 1)
    batch = stored.questions_before(store.read, last, first, 2)
    assert [one.question for one in sorted(batch, key=lambda one: one.start_time)] == [*ASKED["cem"]]
    assert store.write(lambda tx: stored.assign_again(tx, 2, batch, [stored.PlacedQuestion(3, 0.5)] * 2)).result(60)
    found = topics_in(rows, store)
    assert {found[text] for text in ASKED["cem"]} == {"weather"}
    assert found["Why no parcel?"] == "parcel"
    at = min(one.start_time for one in batch)
    known = stored.last_fit(store.read)
    assert known is not None
    assert known.assigned_from == at
    before = stored.questions_before(store.read, at, first, 100)
    assert sorted(one.question for one in before) == sorted((*ASKED["ann"], *ASKED["bob"]))
    assert not store.write(lambda tx: stored.assign_again(tx, 1, before, [stored.PlacedQuestion(0, 1.0)] * 4)).result(
        20
    )
    with pytest.raises(Conflict, match="another fit"):
        store.write(lambda tx: stored.add_fit(tx, fit(2), [])).result(60)
    assert {one.name for one in stored.stored_topics(store.read)} == {"weather", "parcel", "refund, money"}


def test_topics_without_a_trace_go_with_a_later_fit(rows: Any, store: Any) -> None:
    """A topic that vanished is listed once; then it stays while a trace has it."""
    none = fit(2)
    store.write(lambda tx: tx.execute("DELETE FROM raw.trace_facts WHERE topic = 'parcel'")).result(60)
    store.write(lambda tx: stored.add_fit(tx, none, [])).result(60)
    assert {one.name for one in stored.stored_topics(store.read)} == {"refund, money", "parcel"}
    store.write(lambda tx: stored.add_fit(tx, fit(3), [])).result(60)
    assert [one.name for one in stored.stored_topics(store.read)] == ["refund, money"]


def test_a_forgotten_person_leaves_no_text_in_a_topic(rows: Any, store: Any) -> None:
    """A term and a question lose the person's use, and go below the least number; a topic of theirs alone goes."""
    store.write(lambda tx: stored.put_topics(tx, [topic(1, "refund, zanzibar", terms=["refund", "zanzibar"],
        term_users=[3, 2], question="Where is my refund?", question_users=3)])).result(60)  # fmt: skip
    store.write(lambda tx: stored.rename_traces(tx, "refund, money", "refund, zanzibar")).result(60)
    removers = {"topics": forget_texts}
    assert forget(store, "user", "ann", also=removers, dry_run=True, actor="x")["topics"] == 1
    assert stored.stored_topics(store.read)[0].name == "refund, zanzibar"
    forget(store, "user", "ann", also=removers, actor="x")
    (refund, parcel) = sorted(stored.stored_topics(store.read), key=lambda one: one.topic_id)
    assert (refund.terms, refund.term_users, refund.name) == (["refund"], [2], "refund")
    assert (refund.question, refund.question_users) == ("Where is my refund?", 2)
    assert "refund" in topics_in(rows, store).values()
    assert not any("zanzibar" in str(row).casefold() for row in rows(store, "FROM raw.trace_facts"))
    forget(store, "user", "bob", also=removers, actor="x")
    (refund,) = stored.stored_topics(store.read)  # nobody else asked for parcels
    assert (refund.terms, refund.question, refund.name) == ([], None, "Topic 1")
    assert parcel.topic_id == 2


def test_a_name_that_a_person_chose_stays(store: Any) -> None:
    """It is theirs to change; an old automatic name goes with the person although its word is no term any more."""
    chosen = topic(1, "Zanzibar", named_by="ann", terms=["refund"], term_users=[3])
    old = topic(2, "weather, parcel", terms=["parcel"], term_users=[9])
    store.write(lambda tx: stored.put_topics(tx, [chosen, old])).result(60)
    store.write(lambda tx: stored.rename_traces(tx, "parcel", "weather, parcel")).result(60)
    for user in ("ann", "cem"):
        forget(store, "user", user, also={"topics": forget_texts}, actor="x")
    assert {one.topic_id: one.name for one in stored.stored_topics(store.read)} == {1: "Zanzibar", 2: "parcel"}
