"""Topics of questions over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ragpulse_collector.analysis.topics import TopicReport, topic_report
from ragpulse_collector.api.drafts import TopicName
from ragpulse_collector.api.models import TopicChoice
from ragpulse_collector.api.operations import Admin, AnyOperation, Operation
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.topics import rename, stored_topics
from ragpulse_collector.topics.refitting import FitState, Refits


@dataclass(frozen=True, slots=True)
class RenamedTopic:
    """A topic under its new name."""

    topic_id: int
    name: str
    note: str | None = None
    """The rules, monitors and targets that quote the name before: they do not follow."""


def topics(store: Store, params: TopicChoice, *, lead: Lead, state: Callable[[], FitState]) -> TopicReport:
    """Answer `GET topics`."""
    query, fits = params.query(utc_now()), state()
    reader, evaluator = query.reader(store), params.evaluator or lead()
    return topic_report(reader, query, evaluator, limit=params.limit, running=fits.running, problem=fits.problem)


def rename_topic(
    store: Store, params: TopicName, *, mask: Callable[[str], str], quoting: Callable[[str], list[str]]
) -> RenamedTopic:
    """Answer `PUT topics/{id}`; raises NotFound, Conflict. `quoting` returns who quotes a name."""
    name = mask(params.name)
    before = [topic.name for topic in stored_topics(store.read) if topic.topic_id == params.id]
    owners = [owner for old in before if old != name for owner in quoting(old)]
    renamed = store.write(lambda tx: rename(tx, params.id, name, actor=params.caller.actor)).result()
    note = f"The name before is still in: {', '.join(owners)}." if owners else None
    return RenamedTopic(renamed.topic_id, renamed.name, note)


def topic_operations(
    store: Store, refits: Refits, *, lead: Lead, mask: Callable[[str], str], quoting: Callable[[str], list[str]]
) -> tuple[AnyOperation, ...]:
    """Return the operations; `lead` returns the evaluator that leads."""
    return (
        Operation("GET topics", partial(topics, store, lead=lead, state=refits.state),
                  "What people ask, how much of it, and where they are failed.", TopicChoice, TopicReport),
        Admin("POST topics/fit", lambda _: refits.start_fit(), "Find topics again, in the background.",
              answer=FitState),
        Admin("PUT topics/{id}", partial(rename_topic, store, mask=mask, quoting=quoting), "Name a topic.",
              TopicName, RenamedTopic),
    )  # fmt: skip
