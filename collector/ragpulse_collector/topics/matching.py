"""The topics of a new fit beside those of the one before: identities and names go on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragpulse_collector.store.topics import Topic
from ragpulse_collector.topics.model import Topics

SAME = 0.8
"""The least cosine of two centres of the same topic."""


@dataclass(frozen=True, slots=True)
class Matching:
    """The new topics under their old identities and names, and what appeared and vanished."""

    topics: Topics
    appeared: tuple[Topic, ...]
    vanished: tuple[Topic, ...]


def match(old: Topics, new: Topics) -> Matching:
    """Return the new topics with the identities and names of the old ones that they continue, one to one."""
    before = _continued(old, new)
    last, topics = old.last_id, []
    for topic in new.topics:
        was = before.get(topic.topic_id)
        last += was is None
        topics.append(_renumbered(topic, last) if was is None else replace(topic, topic_id=was.topic_id, name=was.name))
    return Matching(
        topics=Topics(tuple(topics), new.other, last),
        appeared=tuple(topic for topic in topics if topic.topic_id > old.last_id),
        vanished=tuple(topic for topic in old.topics if topic not in before.values()),
    )


def _continued(old: Topics, new: Topics) -> dict[int, Topic]:
    """Return the old topic of each new one, by the new identity: the pairing with the largest sum of cosines."""
    if not old.topics or not new.topics:
        return {}
    from scipy.optimize import linear_sum_assignment

    cosines = new.centres @ old.centres.T
    pairs = zip(*linear_sum_assignment(-cosines.clip(SAME)), strict=True)
    return {new.topics[row].topic_id: old.topics[column] for row, column in pairs if cosines[row, column] > SAME}


def _renumbered(topic: Topic, number: int) -> Topic:
    """Return a topic under another identity; a name that is its number follows."""
    return replace(
        topic, topic_id=number, name=f"Topic {number}" if topic.name == f"Topic {topic.topic_id}" else topic.name
    )
