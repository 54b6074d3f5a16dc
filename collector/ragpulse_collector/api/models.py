"""The parameters of the operations that read, by their public names; `drafts` has the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ragpulse_collector.analysis.limits import Measure
from ragpulse_collector.analysis.query import (
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
from ragpulse_collector.analysis.selection import DIMENSIONS, Window, instant
from ragpulse_collector.analysis.why.documents import DocumentSort
from ragpulse_collector.api.params import (
    Duration,
    LocalZone,
    Many,
    Metadata,
    Names,
    Params,
    SpanChoice,
    Step,
    Time,
    TraceId,
)
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, bound_to

HOUR_S = 3600.0
DEFAULT_LIMIT, MAX_LIMIT, MAX_OFFSET = 50, 1000, 2**31

Count = Annotated[int, Field(ge=1)]
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
    NOT_FILTERS: ClassVar[Sequence[str]] = ()
    """Names of columns that mean something else here."""
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
    top_k: Many = []
    answer: Many = Field([], description="`answered`, `refused` or `empty`.")
    topic: Many = Field([], description="Name of a topic, or `other`.")
    label: Many = Field([], description="Traces with a score that has one of these labels; with `evaluator` its label.")
    tag: Many = Field([], description="Traces that have one of these tags.")
    metadata: Metadata = Field(
        {},
        description="Keys of the metadata with their values; in a query string also `metadata.tenant=acme`.",
        examples=[{"tenant": ["acme"]}],
    )
    error: bool | None = None
    q: str | None = Field(
        None, description="Words in question or answer; a user, a session or the start of a trace id."
    )
    dataset: str | None = Field(None, description="Only requests with a question of this dataset.")
    where: str | None = Field(None, description="One SQL boolean over the columns of `traces`.")

    def limited(self, store: Store) -> Store:
        """Return the store to read: a `where` runs under the limits of users' SQL."""
        return store.limited() if self.where else store

    def query(self, now: datetime) -> Query:
        """Return what the request covers; raises Invalid."""
        return Query(
            window=self.window(now),
            filters=self.filters(),
            groups=columns_of(getattr(self, "group_by", ())),
            now=now,
            bound=self.bound(),
            asked=(self.from_, self.to),
        )

    def window(self, now: datetime) -> Window:
        """Return the range; raises Invalid."""
        return window_between(self.from_, self.to, now=now, back=self.BACK, zone=self.zone)

    def bound(self) -> Filter:
        """Return the filter of the caller's key; raises Invalid for a `where`, which could look past it."""
        binding = self.caller.binding
        if binding and self.where:
            raise Invalid("where is not for keys that are bound to services or environments: use the other filters")
        return bound_to(binding) if binding else Filter()

    def filters(self) -> Filter:
        """Return all filters, that of the caller's key among them; raises Invalid."""
        columns = (name for name in DIMENSIONS if name not in ("error", *self.NOT_FILTERS))
        wanted = {name: getattr(self, name) for name in (*columns, "tag")}
        metadata = {f"metadata.{key}": values for key, values in self.metadata.items()}
        return every((
            self.bound(), having(wanted | metadata), in_error(self.error),
            labelled(self.label, getattr(self, "evaluator", None)), in_dataset(self.dataset), with_words(self.q),
            meeting(self.where),
        ))  # fmt: skip


class LastWeek(Filters):
    """Filters, over seven days without `from`."""

    BACK = "7d"


class Buckets(Filters):
    """Filters, and the width of the points."""

    WIDTH: ClassVar[int] = 120
    """The most points without `width`."""
    step: Step | None = None
    width: int | None = Field(None, ge=1, description="The most points, where `step` is `auto`.")

    def window(self, now: datetime) -> Window:
        """Return the range in buckets; raises Invalid."""
        step, width = self.step or "auto", self.width or self.WIDTH
        return window_between(self.from_, self.to, now=now, back=self.BACK, step=step, width=width, zone=self.zone)


class TraceChoice(Filters):
    """The traces of a list, and their order."""

    sort: Sort = "time"
    evaluator: str | None = None
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


class SessionList(Filters):
    """`GET sessions`: sessions with a turn that passes the filters."""

    sort: Literal["time", "cost", "worst"] = "time"
    evaluator: str | None = Field(None, description="`worst` is by this evaluator; default: the one that leads.")
    limit: PageSize = DEFAULT_LIMIT
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="`next` of an earlier answer.")


class TraceFile(TraceChoice):
    """`GET export/traces`."""

    format: Literal["parquet"] = "parquet"


class OneTrace(Params):
    """A trace by its id."""

    trace_id: TraceId
    at: Time | None = Field(None, description="The start time; it makes the look-up cheap.")


class TraceDetail(OneTrace):
    """`GET traces/{trace_id}`."""

    only: Literal["trace", "rest"] | None = None
    spans: SpanChoice | None = None


class Sql(Params):
    """`POST sql`."""

    query: str = Field(min_length=1, description="Exactly one read-only SELECT.")
    params: list[Any] = []


class Cached(Buckets):
    """Figures that several requests share."""

    max_age: float | None = Field(None, ge=0, description="Accept figures up to this many seconds old.")


class Metrics(Cached):
    """`GET metrics`."""

    NOT_FILTERS = ("name",)
    name: str | list[str] = Field(description="A metric, or several.")  # type: ignore[assignment]
    group_by: Names = []
    corrected: bool = Field(False, description="Correct quality by people's labels.")
    assisted_by: str | None = Field(None, description="An evaluator that scored everything; it narrows the intervals.")

    def metrics(self) -> Sequence[str]:
        """Return the metrics by name."""
        return [self.name] if isinstance(self.name, str) else self.name


class Overview(Cached):
    """`GET overview`."""

    only: Literal["traffic"] | None = None


class DigestRange(Buckets):
    """`GET digest`."""

    BACK = "7d"


class MonitorChoice(Params):
    """`GET monitors`."""

    only: Literal["firing"] | None = Field(None, description="Those that are firing, without what they can detect.")


class OfMetric(Filters):
    """A metric, by one of two names."""

    NOT_FILTERS = ("name",)
    name: str | None = Field(None, description="The metric; the same as `metric`.")  # type: ignore[assignment]
    metric: str | None = None

    @property
    def one_metric(self) -> str:
        """The requested metric; empty for none."""
        return self.metric or self.name or ""

    def metrics(self) -> Sequence[str]:
        """Return the requested metric, if any."""
        return [self.one_metric] if self.one_metric else []


class Exemplars(OfMetric):
    """`GET exemplars`."""

    t: Time | None = Field(None, description="Start of the bucket.")
    step: Duration | None = Field(None, description="Length of the bucket.")

    def window(self, now: datetime) -> Window:
        """Return the bucket, or the range without one; raises Invalid."""
        start = self.instant(self.t, now)
        if start is None:
            return super().window(now)
        return Window(start, start + timedelta(seconds=self.step or HOUR_S), 0)


class Explain(OfMetric, Buckets):
    """`GET explain`."""

    WIDTH = 60
    sel_from: Time | None = None
    sel_to: Time | None = None
    sel_lo: float | None = None
    sel_hi: float | None = None
    bad: bool = Field(False, description="Only failing answers, failed requests, or the highest tenth of a number.")
    at: Time | None = Field(None, description="Compare the time after this moment with as long before.")


class Compare(LastWeek):
    """`GET compare`."""

    a: str = Field(description="NAME@VERSION, prompt:v7, model:..., variant:..., service:... or run:ID.")
    b: str
    evaluator: str | None = None
    by: str | None = Field(None, description="Also compare within each value of this column.")


class Check(Filters):
    """`GET check`."""

    evaluator: str
    min: float | None = None
    max: float | None = None
    measure: Measure = "quality"
    corrected: bool = True
    """Whether enough labels of people correct the judge's figure."""


class Plan(LastWeek):
    """`GET plan`."""

    evaluator: str
    half_width: float


class Documents(LastWeek):
    """`GET documents`."""

    evaluator: str | None = None
    sort: DocumentSort = "retrieved"
    limit: Count = 100


class TopicChoice(LastWeek):
    """`GET topics`."""

    evaluator: str | None = Field(None, description="Whose scores are the quality; default: the one that leads.")
    limit: PageSize = DEFAULT_LIMIT


class Gaps(LastWeek):
    """`GET gaps`."""

    evaluator: str | None = Field(None, description="What finds unsupported answers; default: the one that leads.")


class Blame(Buckets):
    """`GET blame`."""

    WIDTH = 30
    group_by: Names = []


class OfEvaluator(Filters):
    """One evaluator, over a range with filters."""

    evaluator: str


class Calibration(OfEvaluator):
    """`GET calibration`."""

    BACK = "90d"


class Suggest(OfEvaluator):
    """`GET labels/suggest`."""

    BACK = "7d"
    limit: Count = 20


class Events(Range):
    """`GET export/evaluations`."""

    evaluator: str | None = None
    limit: Count | None = None


class ById(Params):
    """Something by its id."""

    id: str


class Cases(ById):
    """`GET replays/{id}/cases`."""

    limit: Count | None = None


class Drift(Filters):
    """`GET drift`."""

    evaluator: str | None = None
    back: Duration | None = Field(None, description="The range of the live score, before now.")


class Export(Params):
    """`GET export`."""

    format: Literal["parquet", "jsonl"] = "parquet"


class Named(Params):
    """Something by its name."""

    name: str
