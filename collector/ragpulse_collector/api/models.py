"""The parameters of each operation that reads, by their public names; `drafts` has those that change something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from ragpulse_collector.api.params import (
    Duration,
    Many,
    Metadata,
    Names,
    Params,
    SpanChoice,
    Step,
    Time,
    TraceId,
)
from ragpulse_collector.store import Store

DEFAULT_LIMIT, MAX_LIMIT = 50, 1000

Sort = Literal["time", "oldest", "slow", "fast", "worst", "best", "expensive", "cheap", "long", "short"]
Outcome = Literal["eligible", "selected", "dropped", "uncovered", "scored", "skipped", "invalid", "error"]


class Range(Params):
    """A range of request times."""

    from_: Time | None = Field(None, alias="from", description="First request time.")
    to: Time | None = Field(None, description="End of the range, not included; default: now.")


class Filters(Range):
    """The filters that lists, charts and reports share."""

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
    tag: Many = Field([], description="Traces that have one of these tags.")
    metadata: Metadata = Field(
        {},
        description="Keys of the metadata with their values; in a query string also `metadata.tenant=acme`.",
        examples=[{"tenant": ["acme"]}],
    )
    error: bool | None = None
    q: str | None = Field(
        None, description="Words in question or answer; a user, a session or the begin of a trace id."
    )
    dataset: str | None = Field(None, description="Only requests that ask a question of this dataset.")
    where: str | None = Field(None, description="One SQL boolean over the columns of `traces`.")

    def limited(self, store: Store) -> Store:
        """Return the store to ask: a `where` is answered under the limits of users' SQL."""
        return store.limited() if self.where else store

    def given(self) -> dict[str, Any]:
        """Return the parameters that were given, and as `binding` what the caller's key is bound to."""
        binding = self.caller.binding
        return super().given() | ({"binding": binding} if binding else {})


class Buckets(Filters):
    """Filters, and how the range is cut into points."""

    step: Step | None = None
    width: int | None = Field(None, ge=1, description="The most points, where `step` is `auto`.")


class TraceChoice(Filters):
    """Which traces a list holds, and in what order."""

    sort: Sort = "time"
    evaluator: str | None = None
    outcome: Outcome | None = Field(None, description="What became of a trace with `evaluator`.")
    evaluated_from: Time | None = Field(None, description="With `outcome`: only what was evaluated since.")
    document: str | None = Field(None, description="Traces that retrieved this document.")
    failing: bool | None = Field(None, description="Whether a check says that the answer does not pass.")
    min_score: float | None = None
    max_score: float | None = None

    @model_validator(mode="after")
    def _outcome_of_whom(self) -> TraceChoice:
        if self.outcome and not self.evaluator:
            raise ValueError("outcome needs evaluator: it says with which evaluator")
        return self


class TraceList(TraceChoice):
    """`GET traces`."""

    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    cursor: str | None = Field(None, description="`next` of an earlier answer: older traces.")
    after: str | None = Field(None, description="`newest` of an earlier answer: traces that are newer.")
    facets: bool = Field(False, description="Also count the values of the common columns.")
    total: bool = Field(False, description="Also count the traces on all pages.")


class SessionList(Filters):
    """`GET sessions`: those of which a turn passes the filters."""

    sort: Literal["time", "cost", "worst"] = "time"
    evaluator: str | None = Field(None, description="Whose scores `worst` goes by; default: those of all.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    offset: int = Field(0, ge=0, description="`next` of an earlier answer.")


class TraceFile(TraceChoice):
    """`GET export/traces`."""

    format: Literal["parquet"] = "parquet"


class OneTrace(Params):
    """A trace by its id."""

    trace_id: TraceId
    at: Time | None = Field(None, description="The start time, which makes the look-up cheap.")


class TraceDetail(OneTrace):
    """`GET traces/{trace_id}`."""

    only: Literal["trace", "rest"] | None = None
    spans: SpanChoice | None = None


class Sql(Params):
    """`POST sql`."""

    query: str = Field(min_length=1, description="Exactly one read-only SELECT.")
    params: list[Any] = []


class Cached(Buckets):
    """What is read once for several questions."""

    max_age: float | None = Field(None, ge=0, description="Accept figures that were read up to so many seconds ago.")


class Metrics(Cached):
    """`GET metrics`."""

    name: str | list[str] = Field(description="A metric, or several.")  # type: ignore[assignment]
    group_by: Names = []
    corrected: bool = Field(False, description="Correct quality by people's labels.")
    assisted_by: str | None = Field(None, description="An evaluator that scored everything; makes intervals narrower.")

    def metrics(self) -> Sequence[str]:
        """Return the metrics by name."""
        return [self.name] if isinstance(self.name, str) else self.name


class Overview(Cached):
    """`GET overview`."""

    only: Literal["traffic"] | None = None


class Exemplars(Filters):
    """`GET exemplars`; `name` is another name of `metric`."""

    name: str | None = Field(None, description="The metric; the same as `metric`.")  # type: ignore[assignment]
    metric: str | None = None
    t: Time | None = Field(None, description="Start of the bucket.")
    step: Duration | None = Field(None, description="Length of the bucket.")

    def given(self) -> dict[str, Any]:
        """Return the parameters with the metric as `name`."""
        given = super().given()
        return given | {"name": given.pop("metric", None) or self.name}

    def metrics(self) -> Sequence[str]:
        """Return the metric that is asked for, if any."""
        return [one for one in (self.metric or self.name,) if one]


class Explain(Buckets):
    """`GET explain`; `name` is another name of `metric`."""

    name: str | None = Field(None, description="The metric; the same as `metric`.")  # type: ignore[assignment]
    metric: str | None = None
    sel_from: Time | None = None
    sel_to: Time | None = None
    sel_lo: float | None = None
    sel_hi: float | None = None
    bad: bool = Field(False, description="Only failing answers, failed requests, or the highest tenth of a number.")

    def metrics(self) -> Sequence[str]:
        """Return the metric that is asked for, if any."""
        return [one for one in (self.metric or self.name,) if one]


class Compare(Filters):
    """`GET compare`."""

    a: str = Field(description="NAME@VERSION, prompt:v7, model:..., variant:..., service:... or run:ID.")
    b: str
    evaluator: str | None = None
    by: str | None = Field(None, description="Also compare within each value of this column.")


class Check(Filters):
    """`GET check`."""

    evaluator: str
    min: float


class Plan(Filters):
    """`GET plan`."""

    evaluator: str
    half_width: float


class Documents(Filters):
    """`GET documents`."""

    evaluator: str | None = None
    sort: Literal["worst", "best", "retrieved", "unused"] = "retrieved"
    limit: int | None = None


class Blame(Buckets):
    """`GET blame`."""

    group_by: Names = []


class OfEvaluator(Filters):
    """One evaluator, over a range with filters."""

    evaluator: str


class Suggest(OfEvaluator):
    """`GET labels/suggest`."""

    limit: int | None = None


class Events(Range):
    """`GET export/evaluations`."""

    evaluator: str | None = None
    limit: int | None = None


class ById(Params):
    """Something by its id."""

    id: str


class OneSession(ById):
    """`GET sessions/{id}`."""


class Cases(ById):
    """`GET replays/{id}/cases`."""

    limit: int | None = None


class Drift(Filters):
    """`GET drift`."""

    evaluator: str | None = None
    back: Duration | None = Field(None, description="How far the live score is looked at.")


class Export(Params):
    """`GET export`."""

    format: Literal["parquet", "jsonl"] = "parquet"


class Named(Params):
    """Something by its name."""

    name: str
