"""The parameters of the operations that change something: rules, monitors, labels, replays, anchors, deletion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from ragpulse_collector.api.models import MAX_LIMIT, ById, Filters, OfEvaluator, TraceList
from ragpulse_collector.api.params import Duration, JsonList, Names, Params, Since, SpanId, TraceId, TraceIds, Unit
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store.queries.datasets import Item
from ragpulse_collector.store.queries.scores import FEEDBACK

MAX_TEXT = 10_000
Text = Annotated[str, AfterValidator(lambda text: text[:MAX_TEXT])]
"""A text that a person typed, cut at its limit."""


class StratumDraft(BaseModel):
    """A condition with its own rate."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
    where: str
    rate: Unit


class RuleDraft(Params):
    """A rule to store or to preview."""

    name: str
    evaluators: Names
    rate: Unit
    where: str | None = None
    strata: Annotated[list[StratumDraft], JsonList] = []
    unit: Literal["trace", "session"] = Field("trace", description="`session`: the last turn of each quiet session.")
    budget_usd_per_day: float | None = Field(
        None, ge=0, description="The most that this rule may spend on judges in a day."
    )


class MonitorDraft(Params):
    """A monitor to store or to preview."""

    name: str = Field("preview", min_length=1)
    metric: str
    condition: str
    group_by: Names = []
    where: str | None = None
    window: str = "1h"
    baseline: str = "7d"
    false_alarms_per_year: float = Field(4, gt=0)
    min_n: int = Field(0, ge=0)
    notify: Names = []

    def settings(self) -> MonitorSettings:
        """Return the monitor in the form of the file."""
        return MonitorSettings.model_validate(self.model_dump())


class Mute(Params):
    """`POST monitors/{name}/mute`; without `for` it sends messages again."""

    name: str
    for_: Duration | None = Field(None, alias="for")


class Label(Params):
    """`POST labels`."""

    trace_id: TraceId
    span_id: SpanId | None = None
    evaluator: Text
    score: Unit | None = None
    passing: bool | None = None
    comment: Text | None = None
    annotator: Text | None = None
    label_pi: float | None = Field(None, gt=0, le=1)

    def named_evaluators(self) -> tuple[str, ...]:
        """Return none: people label answers before an evaluator of that name scores any."""
        return ()

    @model_validator(mode="after")
    def _has_verdict(self) -> Label:
        if self.score is None and self.passing is None:
            raise Invalid("a label needs `score` (0..1) or `passing` (true or false)")
        return self


class Score(Params):
    """`POST scores`; `explanation` is another name of `comment`."""

    trace_id: TraceId
    span_id: SpanId | None = None
    name: Text = FEEDBACK
    score: float | None = None
    label: Text | None = None
    comment: Text | None = None
    explanation: Text | None = None

    @model_validator(mode="after")
    def _has_value(self) -> Score:
        if self.score is None and self.label is None:
            raise Invalid("a score needs `score` (a number) or `label` (a text)")
        return self


class Evaluate(Params):
    """`POST evaluate`."""

    trace_id: TraceId
    span_id: SpanId | None = None
    evaluators: Names = Field(min_length=1)


class Replay(Filters):
    """`POST replays`."""

    evaluators: Names = []
    external: list[dict[str, Any]] = Field([], description="Evaluators of the caller's process.")
    since: Since | None = None
    limit: int | None = Field(None, ge=1)
    max_usd: float | None = Field(None, ge=0)
    judge: str | None = None
    dry_run: bool = Field(False, description="Only report count, tokens and cost.")
    loads: SkipJsonSchema[Any] = None
    """Only in the same process, like `prompts`."""
    prompts: SkipJsonSchema[Any] = None


class Resume(ById):
    """`POST replays/{id}/resume`."""

    max_usd: float | None = Field(None, ge=0)


class Results(ById):
    """`POST replays/{id}/results`."""

    results: list[Any] = []
    capped: str | None = Field(None, description="The reason why the caller stops before the end.")


class Anchors(OfEvaluator):
    """`POST drift/anchors`."""

    n: int | None = Field(None, ge=1)


class Evaluator(Params):
    """`POST drift/run`."""

    evaluator: str


class Prune(Params):
    """`POST prune`."""

    older_than: Duration | None = None
    service: str | None = None
    user: str | None = Field(None, description="A person: all traces of this `user_id`, and of its sessions.")
    session: str | None = Field(None, description="All traces of this `session_id`.")
    trace: TraceId | None = None
    dry_run: bool = Field(False, description="Only count.")

    @model_validator(mode="after")
    def _one_choice(self) -> Prune:
        choices = (self.older_than, self.service, self.user, self.session, self.trace)
        if sum(choice is not None for choice in choices) != 1:
            raise Invalid("name one of older_than (30d, 12h), service, user, session and trace")
        return self


class DatasetDraft(TraceList):
    """`POST datasets/{id}`."""

    id: str = Field(min_length=1, max_length=80)
    limit: int = Field(MAX_LIMIT, ge=1, le=MAX_LIMIT)
    trace_ids: TraceIds = Field([], description="These traces; without them those that the filters match.")
    items: list[Item] = []
