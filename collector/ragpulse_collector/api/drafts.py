"""The parameters of the operations that change something: rules, monitors, labels, replays, anchors, deletion."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from ragpulse_collector.analysis.query import window_between
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.api.models import MAX_LIMIT, ById, Count, LastWeek, OfEvaluator, PageSize, TraceList
from ragpulse_collector.api.params import (
    AS_NAMES,
    Duration,
    JsonList,
    Many,
    Names,
    Params,
    Since,
    SpanId,
    TraceId,
    TraceIds,
    Unit,
)
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import MonitorSettings, RuleSettings, Stratum
from ragpulse_collector.settings.zones import ZoneName
from ragpulse_collector.store.queries.datasets import Item
from ragpulse_collector.store.queries.runs import Declaration
from ragpulse_collector.store.queries.scores import FEEDBACK
from ragpulse_evaluators import EvaluationResult

MAX_TEXT = 10_000
Text = Annotated[str, AfterValidator(lambda text: text[:MAX_TEXT])]
"""A text that a person typed, cut at its limit."""


class RuleDraft(Params, RuleSettings):
    """A rule to store or to preview: the keys of `[[rule]]`, lists also as texts."""

    evaluators: Annotated[tuple[str, ...], AS_NAMES] = Field(min_length=1)
    strata: Annotated[tuple[Stratum, ...], JsonList] = ()


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
    tz: ZoneName | None = None

    def settings(self) -> MonitorSettings:
        """Return the monitor in the form of the file."""
        return MonitorSettings(**{name: getattr(self, name) for name in MonitorDraft.model_fields})


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


class ReplayDraft(LastWeek):
    """`POST replays`."""

    evaluators: Names = []
    external: list[Declaration] = Field([], description="Evaluators of the caller's process.")
    since: Since | None = None
    limit: Count | None = None
    max_usd: float | None = Field(None, ge=0)
    judge: str | None = None
    dry_run: bool = Field(False, description="Only report count, tokens and cost.")
    loads: SkipJsonSchema[Many] = []
    """Only in the same process, like `prompts` (one folder)."""
    prompts: SkipJsonSchema[Many] = []

    def window(self, now: datetime) -> Window:
        """Return the range; raises Invalid."""
        return window_between(self.from_ or self.since, self.to, now=now, back=self.BACK, zone=self.zone)


class Resume(ById):
    """`POST replays/{id}/resume`."""

    max_usd: float | None = Field(None, ge=0)


class SentResult(BaseModel):
    """A result of the caller for one of its cases."""

    model_config = ConfigDict(defer_build=True)

    job_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    result: EvaluationResult
    elapsed_ms: float | None = None


class Results(ById):
    """`POST replays/{id}/results`."""

    results: list[SentResult] = []
    capped: str | None = Field(None, description="The reason why the caller stops before the end.")


class AnchorDraft(OfEvaluator):
    """`POST drift/anchors`."""

    BACK = "7d"
    n: Count | None = None


class NamedEvaluator(Params):
    """`POST drift/run`."""

    evaluator: str


class CheckDraft(Params):
    """`POST judge/check`."""

    judge: str | None = Field(None, description="Name or model of a configured judge; default: that of `[judge]`.")
    max_usd: float | None = Field(None, ge=0, description="Stop before spending more than this.")


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


class TopicName(Params):
    """`PUT topics/{id}`."""

    id: int
    name: Annotated[str, AfterValidator(lambda name: " ".join(name.split()))] = Field(max_length=80)

    @model_validator(mode="after")
    def _readable(self) -> TopicName:
        if not self.name.isprintable() or not self.name:
            raise Invalid("name: write a name on one line")
        return self


class DatasetDraft(TraceList):
    """`POST datasets/{id}`."""

    id: str = Field(min_length=1, max_length=80)
    limit: PageSize = MAX_LIMIT
    trace_ids: TraceIds = Field([], description="These traces; without them those that the filters match.")
    items: list[Item] = []
