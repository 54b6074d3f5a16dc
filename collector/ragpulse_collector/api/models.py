"""The parameters of the operations that read, by their public names; `drafts` has the others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field, model_validator

from ragpulse_collector.analysis.query import (
    Moment,
    Query,
    columns_of,
    every,
    having,
    in_dataset,
    in_error,
    labelled,
    meeting,
    window_between,
    with_words,
)
from ragpulse_collector.analysis.selection import Window, instant
from ragpulse_collector.api.params import (
    EvaluatorName,
    LocalZone,
    Many,
    Members,
    Params,
    Step,
    Time,
    TraceId,
)
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import DIMENSIONS, Filter, Roots, bound_to, is_bound

HOUR_S = 3600.0
DEFAULT_LIMIT, MAX_LIMIT, MAX_OFFSET = 50, 1000, 2**31

PageSize = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Sort = Literal["time", "oldest", "slow", "fast", "worst", "best", "expensive", "cheap", "long", "short"]
Outcome = Literal["eligible", "selected", "dropped", "uncovered", "scored", "skipped", "invalid", "error"]


class Range(Params):
    """A range of request times."""

    from_: Time | None = Field(None, alias="from", description="First request time.")
    to: Time | None = Field(None, description="End of the range, not included; default: now.")
    tz: LocalZone = "UTC"

    @property
    def zone(self) -> tzinfo:
        """The zone of local days."""
        return zone_of(self.tz)

    def instant(self, time: datetime | timedelta | str | None, now: datetime) -> datetime | None:
        """Return a time of the request in UTC; raises Invalid."""
        return instant(time, now=now, zone=self.zone)


class Filters(Range):
    """The filters that lists, charts and reports share."""

    BACK: ClassVar[str] = "24h"
    """The length of the range without `from`."""
    service: Many = []
    environment: Many = []
    model: Many = []
    prompt_name: Many = []
    prompt_version: Many = []
    variant: Many = []
    session_id: Many = []
    user_id: Many = []
    name: Many = Field([], description="Name of the root span.")
    retriever: Many = []
    release: Many = Field([], description="`service.version` of the application.")
    finish_reason: Many = Field([], description="Why the model stopped, as the provider spells it.")
    agent: Many = []
    data_source: Many = []
    index_version: Many = Field([], description="`ragpulse.index.version` of the retriever.")
    top_k: Many = []
    answer: Many = Field([], description="`answered`, `refused` or `empty`.")
    topic: Many = Field([], description="Name of a topic, or `other`.")
    label: Many = Field([], description="Traces with a score that has one of these labels; with `evaluator` its label.")
    tag: Many = Field([], description="Traces that have one of these tags.")
    labels: Members = Field(
        {},
        description="Labels of evaluators with their values; in a query string also `label.language=de`.",
        examples=[{"language": ["de"]}],
    )
    metadata: Members = Field(
        {},
        description="Keys of the metadata with their values; in a query string also `metadata.tenant=acme`.",
        examples=[{"tenant": ["acme"]}],
    )
    error: bool | None = None
    roots: Roots = Field("requests", description="`other`: what is stored and not counted; `all`: both.")
    q: str | None = Field(
        None, description="Words in question or answer; a user, a session or the start of a trace id."
    )
    dataset: str | None = Field(None, description="Only requests with a question of this dataset.")
    where: str | None = Field(None, description="One SQL boolean over the columns of `traces`.")

    def limited(self, store: Store) -> Store:
        """Return the store to read: a `where` runs under the limits of users' SQL."""
        return store.limited() if self.where else store

    def asked(self, store: Store, now: datetime, group_by: Iterable[str] = ()) -> tuple[Store, Query]:
        """Return the store to read and what the request covers; raises Invalid."""
        query = self.query(now, group_by)
        return query.reader(store), query

    def query(self, now: datetime, group_by: Iterable[str] = (), since: Moment = None) -> Query:
        """Return what the request covers; raises Invalid."""
        return Query(
            window=self.window(now, since),
            filters=self.filters(),
            groups=columns_of(group_by),
            now=now,
            bound=self.bound(),
            asked=(self.from_, self.to),
        )

    def window(self, now: datetime, since: Moment = None) -> Window:
        """Return the range; raises Invalid."""
        return window_between(self.from_ or since, self.to, now=now, back=self.BACK, zone=self.zone)

    def bound(self) -> Filter:
        """Return the filter of the caller's key; raises Invalid for a `where`, which could look past it."""
        binding = self.caller.binding
        if binding and self.where:
            raise Invalid("where is not for keys that are bound to services or environments: use the other filters")
        return bound_to(binding) if binding else Filter()

    def filters(self) -> Filter:
        """Return all filters, that of the caller's key among them; raises Invalid."""
        columns = (name for name in DIMENSIONS if name not in ("error", *self.OWN))
        wanted = {name: getattr(self, name) for name in (*columns, "tag")}
        members = {f"metadata.{key}": values for key, values in self.metadata.items()}
        members |= {f"label:{name}": values for name, values in self.labels.items()}
        return every((
            self.bound(), having(wanted | members), in_error(self.error),
            labelled(self.label, getattr(self, "evaluator", None)), in_dataset(self.dataset), with_words(self.q),
            meeting(self.where), Filter(roots=self.roots),
        ))  # fmt: skip


class LastWeek(Filters):
    """Filters, over seven days without `from`."""

    BACK = "7d"


class Last90Days(Filters):
    """Filters, over ninety days without `from`."""

    BACK = "90d"


class Buckets(Filters):
    """Filters, and the width of the points."""

    WIDTH: ClassVar[int] = 120
    """The most points without `width`."""
    step: Step | None = None
    width: int | None = Field(None, ge=1, description="The most points, where `step` is `auto`.")

    def window(self, now: datetime, since: Moment = None) -> Window:
        """Return the range in buckets; raises Invalid."""
        step, width = self.step or "auto", self.width or self.WIDTH
        return window_between(
            self.from_ or since, self.to, now=now, back=self.BACK, step=step, width=width, zone=self.zone
        )


class TraceChoice(Filters):
    """The traces of a list, and their order."""

    sort: Sort = "time"
    evaluator: EvaluatorName | None = None
    outcome: Outcome | None = Field(None, description="The outcome of a trace with `evaluator`.")
    evaluated_from: Time | None = Field(None, description="With `outcome`: only evaluations since this time.")
    document: str | None = Field(None, description="Only traces that retrieved this document.")
    failing: bool | None = Field(None, description="Whether the answer fails `evaluator`; default: the one that leads.")
    min_score: float | None = None
    max_score: float | None = None

    @model_validator(mode="after")
    def _outcome_needs_evaluator(self) -> TraceChoice:
        if self.outcome and not self.evaluator:
            raise Invalid("outcome needs evaluator: the outcome with which evaluator?")
        return self


class TraceList(TraceChoice):
    """`GET traces`."""

    limit: PageSize = DEFAULT_LIMIT
    cursor: str | None = Field(None, description="`next` of an earlier answer: older traces.")
    after: str | None = Field(None, description="`newest` of an earlier answer: traces that are newer.")
    facets: bool = Field(False, description="Also count the values of the common columns.")
    total: bool = Field(False, description="Also count the traces on all pages.")


class WeekInBuckets(Buckets):
    """Filters and the width of the points, over seven days without `from`."""

    BACK = "7d"


class OneTrace(Params):
    """A trace by its id."""

    trace_id: TraceId
    at: Time | None = Field(None, description="The start time; it makes the look-up cheap.")

    def check_binding(self, store: Store) -> None:
        """Raise NotFound where the caller's key is not bound to the trace; after reading, because spans may arrive."""
        if not is_bound(store, self.trace_id, self.caller.binding):
            raise no_trace(self.trace_id)


def no_trace(trace_id: UUID) -> NotFound:
    """Return the refusal of a trace that there is not."""
    return NotFound(f"there is no trace {trace_id.hex}, or no such span in it; it may be past the retention")
