"""Topics of questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from ragpulse_collector.analysis.topics import TopicReport, topic_report
from ragpulse_collector.api.models import DEFAULT_LIMIT, LastWeek, PageSize
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Caller, EvaluatorName, Mask
from ragpulse_collector.interface import Tool
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.sampling import Rules
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock
from ragpulse_collector.store.topics import rename, stored_topics
from ragpulse_collector.topics.refitting import FitState, Refits


@dataclass(frozen=True, slots=True)
class RenamedTopic:
    """A topic under its new name."""

    topic_id: int
    name: str
    note: str | None = None
    """The rules, monitors and targets that quote the name before: they do not follow."""


@operation("GET topics", tools=(Tool("topics", ("since", "limit", "where"), {"limit": 20}),))
def topics(
    store: Store,
    clock: Clock,
    lead: Lead,
    refits: Refits,
    /,
    choice: LastWeek,
    evaluator: Annotated[EvaluatorName | None, "Whose scores are the quality; default: the one that leads."] = None,
    limit: PageSize = DEFAULT_LIMIT,
) -> TopicReport:
    """What users ask by topic, the most answers lost first, with quality and worst answers."""
    reader, query = choice.asked(store, clock())
    fits = refits.state()
    return topic_report(reader, query, evaluator or lead(), limit=limit, running=fits.running, problem=fits.problem)


@operation("POST topics/fit", scope="admin")
def fit(refits: Refits, /) -> FitState:
    """Find topics again, in the background."""
    return refits.start_fit()


TopicName = Annotated[str, AfterValidator(lambda name: " ".join(name.split())), Field(max_length=80)]


@operation("PUT topics/{id}", scope="admin")
def rename_topic(
    store: Store,
    mask: Mask,
    settings: Settings,
    rules: Rules,
    monitors: Monitors,
    /,
    caller: Caller,
    id: int,
    name: TopicName,
) -> RenamedTopic:
    """Name a topic.

    Raises NotFound, Conflict.
    """
    if not name.isprintable() or not name:
        raise Invalid("name: write a name on one line")
    name = mask(name)
    before = [topic.name for topic in stored_topics(store.read) if topic.topic_id == id]
    owners = [owner for old in before if old != name for owner in _quoting(settings, rules, monitors, old)]
    renamed = store.write(lambda tx: rename(tx, id, name, actor=caller.actor)).result()
    note = f"The name before is still in: {', '.join(owners)}." if owners else None
    return RenamedTopic(renamed.topic_id, renamed.name, note)


def _quoting(settings: Settings, rules: Rules, monitors: Monitors, topic: str) -> list[str]:
    """Return the rules, monitors and targets whose metric or conditions name a topic."""
    watched = [one.settings for one in monitors.definitions]
    texts = [(f"rule {one.name!r}", (one.where, *(part.where for part in one.strata))) for one in rules.effective()]
    texts += [(f"monitor {one.name!r}", (one.where, one.metric)) for one in watched]
    texts += [(f"target {one.metric!r}", (one.where, one.metric)) for one in settings.target]
    value, metric = f"""'{topic.replace("'", "''")}'""", f"topic_share:{topic}"
    return [owner for owner, own in texts if any(text and (value in text or text == metric) for text in own)]
