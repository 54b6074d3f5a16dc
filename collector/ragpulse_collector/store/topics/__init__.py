"""The tables of topics: fits, the topics that they found under the names of today, and the topics of traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.refusals import Conflict, NotFound
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.protocol import Read, Transaction
from ragpulse_collector.store.queries.decisions import TEST_ENVIRONMENT
from ragpulse_collector.store.retention import audit

OTHER_TOPIC = "other"
"""The topic of a trace whose question belongs to none."""


@dataclass(frozen=True, slots=True)
class TopicFit:
    """A fit: the questions that it read, and how far traces have its topics."""

    fit_id: int
    fitted_at: datetime
    questions: int
    other: int
    """Its questions that belong to no topic."""
    last_id: int
    """The largest identity of a topic, ever."""
    embedder: str
    least_users: int
    assigned_from: datetime | None
    """Decided traces of this time and later have topics of this fit; None: only those decided since."""


@dataclass(frozen=True, slots=True)
class Topic:
    """Questions that mean about the same."""

    topic_id: int
    name: str
    question: str | None
    """The most central question that enough users asked; None where there is none."""
    question_users: int
    """How many asked it."""
    terms: Sequence[str]
    """Words that distinguish the topic, the best first; each was used by enough users."""
    term_users: Sequence[int]
    """How many used each."""
    size: int
    """Questions of the fit."""
    centre: Sequence[float]


@dataclass(frozen=True, slots=True)
class StoredTopic(Topic):
    """A topic of the last fit, or one that a fit before found and that stored traces have."""

    fit_id: int
    """The last fit that found it."""
    first_fit: int
    named_by: str | None
    """Who chose the name; None: its terms did."""
    share_before: float | None
    """Its share in the fit before its last one; None if it was not there."""


class PlacedQuestion(NamedTuple):
    """The identity of the topic of a question (0: other), and its distance from the nearest centre."""

    topic_id: int
    distance: float


class Saying(NamedTuple):
    """A question of somebody."""

    question: str
    user: str
    """Of the user, else the session, else the trace."""


_COLUMNS = ", ".join(field.name for field in fields(StoredTopic))
_ASKED = f"""
    FROM raw.trace_facts WHERE latest AND query IS NOT NULL AND environment IS DISTINCT FROM '{TEST_ENVIRONMENT}'
      AND start_time >= $since"""
SAME = "hash(rtrim(lower(trim(query)), '?!. '))"
"""Equal for questions that differ in case and final marks alone (SQL): those of one user are one question."""
_NAMED = """
    SELECT a.trace_id, CASE WHEN a.topic_id = 0 THEN 'other' ELSE t.name END AS topic, a.distance
    FROM (SELECT unnest($traces::UUID[]) AS trace_id, unnest($topics::INTEGER[]) AS topic_id,
                 unnest($distances::FLOAT[]) AS distance) a
    LEFT JOIN raw.topics t USING (topic_id)"""


OF_QUESTIONS = """
    CREATE OR REPLACE TEMP TABLE question_topic AS
    SELECT a.question, CASE WHEN a.topic_id = 0 THEN 'other' ELSE t.name END AS topic, a.distance
    FROM (SELECT unnest($questions::UBIGINT[]) AS question, unnest($topics::INTEGER[]) AS topic_id,
                 unnest($distances::FLOAT[]) AS distance) a
    LEFT JOIN raw.topics t USING (topic_id)"""
"""The topic of each question, by its hash, under the name it has now, and the distance from its nearest centre."""


def last_fit(read: Read) -> TopicFit | None:
    """Return the fit in force."""
    names = ", ".join(field.name for field in fields(TopicFit))
    found = read(f"SELECT {names} FROM raw.topic_fits ORDER BY fit_id DESC LIMIT 1").of(TopicFit)
    return found[0] if found else None


def in_force(read: Read) -> tuple[int, int]:
    """Return the fit in force and its number of topics: what a reader of topics has read is the same while they are."""
    sql = "SELECT coalesce(max(fit_id), 0) FROM raw.topic_fits"
    fit, count = read(f"SELECT f, (SELECT count(*) FROM raw.topics WHERE fit_id = f) FROM ({sql}) t(f)").rows[0]
    return int(fit), int(count)


def count_forgotten(read: Read) -> int:
    """Return a number that grows when a person is forgotten."""
    return int(read("SELECT count(*) FROM raw.forgotten").rows[0][0])


def stored_topics(read: Read) -> list[StoredTopic]:
    """Return all topics, those of the last fit first, the largest first."""
    return read(f"SELECT {_COLUMNS} FROM raw.topics ORDER BY fit_id DESC, size DESC, topic_id").of(StoredTopic)


def count_asked(read: Read, since: datetime, most: int) -> int:
    """Return how many decided traces have a question, at most so many."""
    return int(read(f"SELECT count(*) FROM (SELECT 1 {_ASKED} LIMIT $most)", {"since": since, "most": most}).rows[0][0])


def asked(read: Read, since: datetime, most: int) -> list[Saying]:
    """Return the beginnings of questions and who asked them: all, or a random part that is the same each time.

    One user has at most a tenth of `most`: topics are what users ask, not what one of them sends.
    """
    of_user = f"row_number() OVER (PARTITION BY {CLUSTER} ORDER BY hash(trace_id), trace_id)"
    sql = f"""
        SELECT left(query, 2000), ({CLUSTER})::VARCHAR {_ASKED} QUALIFY {of_user} <= $most_of_user
        ORDER BY hash(trace_id), trace_id LIMIT $most"""
    return [Saying(*row) for row in read(sql, {"since": since, "most": most, "most_of_user": most // 10}).rows]


def add_fit(transaction: Transaction, fit: TopicFit, topics: Sequence[StoredTopic]) -> None:
    """Store a fit and its topics; topics of earlier fits stay while a trace has them. Raises Conflict.

    Of two fits at once the first to end counts.
    """
    before = last_fit(transaction.execute)
    if fit.fit_id != (before.fit_id if before else 0) + 1:
        raise Conflict("another fit of topics ended meanwhile: its topics are in force")
    _insert(transaction, "topic_fits", fit)
    transaction.execute(
        "DELETE FROM raw.topics WHERE fit_id < $fit - 1 AND name NOT IN ("
        "SELECT DISTINCT topic FROM raw.trace_facts WHERE topic IS NOT NULL)",
        {"fit": fit.fit_id},
    )
    put_topics(transaction, topics)


def put_topics(transaction: Transaction, topics: Sequence[StoredTopic]) -> None:
    """Store topics in the place of those with their identities."""
    remove_topics(transaction, [topic.topic_id for topic in topics])
    for topic in topics:
        _insert(transaction, "topics", topic)


def remove_topics(transaction: Transaction, ids: Sequence[int]) -> None:
    """Delete topics; traces lose theirs when they go."""
    transaction.execute("DELETE FROM raw.topics WHERE topic_id IN (SELECT unnest($ids::INTEGER[]))", {"ids": list(ids)})


def _insert(transaction: Transaction, table: str, row: TopicFit | StoredTopic) -> None:
    found = ((field.name, getattr(row, field.name)) for field in fields(row))
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in found}
    names = ", ".join(values)
    marks = ", ".join(f"${name}" for name in values)
    transaction.execute(f"INSERT INTO raw.{table} ({names}) VALUES ({marks})", values)


def rename(transaction: Transaction, topic_id: int, name: str, *, actor: str) -> StoredTopic:
    """Give a topic a name, here and in its traces; raises NotFound, Conflict where another topic has it."""
    topics = {topic.topic_id: topic for topic in stored_topics(transaction.execute)}
    if topic_id not in topics:
        raise NotFound(f"there is no topic {topic_id}")
    taken = {topic.name.casefold() for topic in topics.values() if topic.topic_id != topic_id}
    if name.casefold() in taken | {OTHER_TOPIC}:
        raise Conflict(f"another topic has the name {name!r}")
    renamed = replace(topics[topic_id], name=name, named_by=actor)
    put_topics(transaction, [renamed])
    rename_traces(transaction, topics[topic_id].name, name)
    audit(transaction, actor=actor, action="rename topic", detail={"topic": topic_id})
    return renamed


def rename_traces(transaction: Transaction, old: str, new: str) -> None:
    """Change the name of a topic in its traces."""
    if old != new:
        transaction.execute("UPDATE raw.trace_facts SET topic = $new WHERE topic = $old", {"old": old, "new": new})


@dataclass(frozen=True, slots=True)
class TraceQuestion:
    """A trace and the beginning of its question."""

    trace_id: str
    start_time: datetime
    question: str


def questions_before(read: Read, before: datetime, since: datetime, most: int) -> list[TraceQuestion]:
    """Return about the latest `most` traces with a question that start before a time; all that start together."""
    inside = "FROM raw.trace_facts WHERE latest AND query IS NOT NULL AND start_time >= $since AND start_time < $before"
    first = f"(SELECT min(start_time) FROM (SELECT start_time {inside} ORDER BY start_time DESC LIMIT $most))"
    sql = f"SELECT trace_id::VARCHAR AS trace_id, start_time, left(query, 2000) AS question {inside}"
    parameters = {"before": before, "since": since, "most": most}
    return read(f"{sql} AND start_time >= {first}", parameters).of(TraceQuestion)


def assign_again(
    transaction: Transaction, fit_id: int, traces: Sequence[TraceQuestion], found: Sequence[PlacedQuestion]
) -> bool:
    """Store the topics and distances of traces by a fit; returns whether the fit is in force."""
    fit = last_fit(transaction.execute)
    if fit is None or fit.fit_id != fit_id:
        return False
    times = [trace.start_time for trace in traces]
    bounds = {"first": min(times), "last": max(times)}
    topics, distances = [one.topic_id for one in found], [one.distance for one in found]
    named = {"traces": [trace.trace_id for trace in traces], "topics": topics, "distances": distances}
    transaction.execute(
        f"UPDATE raw.trace_facts SET topic = n.topic, question_distance = n.distance FROM ({_NAMED}) n"
        " WHERE trace_facts.trace_id = n.trace_id AND latest AND start_time BETWEEN $first AND $last"
        " AND (trace_facts.topic, question_distance) IS DISTINCT FROM (n.topic, n.distance)",
        {**bounds, **named},
    )
    transaction.execute(
        "UPDATE raw.topic_fits SET assigned_from = $first WHERE fit_id = $fit", {"first": min(times), "fit": fit_id}
    )
    return True


def said_by_forgotten(transaction: Transaction) -> list[Saying]:
    """Return the questions of the traces in the temporary table `forgotten`."""
    sql = f"SELECT query, ({CLUSTER})::VARCHAR FROM raw.trace_facts WHERE query IS NOT NULL"
    return [Saying(*row) for row in transaction.execute(f"{sql} AND trace_id IN (FROM forgotten)").rows]


def only_of_forgotten(transaction: Transaction) -> set[str]:
    """Return the names of topics that no trace has but those in the temporary table `forgotten`."""
    rows = transaction.execute(
        "SELECT topic FROM raw.trace_facts WHERE topic IS NOT NULL AND latest GROUP BY topic"
        " HAVING bool_and(trace_id IN (FROM forgotten))"
    ).rows
    return {name for (name,) in rows}
