"""The parameters of the operations that change something: rules, monitors, labels, replays, anchors, deletion."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ragpulse_collector.api.params import (
    AS_NAMES,
    JsonList,
    Names,
    Params,
)
from ragpulse_collector.settings import MonitorSettings, RuleSettings, Stratum
from ragpulse_collector.settings.zones import ZoneName
from ragpulse_evaluators import EvaluationResult


class RuleDraft(Params, RuleSettings):
    """A rule to store or to preview: the keys of `[[rule]]`, lists also as texts."""

    evaluators: Annotated[tuple[str, ...], AS_NAMES] = Field(min_length=1)
    strata: Annotated[tuple[Stratum, ...], JsonList] = ()


class MonitorDraft(Params):
    """A monitor to store or to preview."""

    name: str = Field("preview", min_length=1)
    metric: str = Field(description="As in `GET metrics`: quality:groundedness, latency_p95, requests.")
    condition: str = Field(description="`< 0.85`, `> 3000`, `change` or `no data`.")
    group_by: Names = []
    where: str | None = None
    window: str = Field("1h", description="The time that one check covers.")
    baseline: str = "28d"
    false_alarms_per_year: float = Field(4, gt=0, description="The acceptable number, over all groups.")
    min_n: int = Field(0, ge=0, description="With fewer answers or requests the monitor is undecided.")
    notify: Names = Field([], description="Each a [[destination]] of ragpulse.toml.")
    tz: ZoneName | None = None

    def settings(self) -> MonitorSettings:
        """Return the monitor in the form of the file."""
        return MonitorSettings(**{name: getattr(self, name) for name in MonitorDraft.model_fields})


class SentResult(BaseModel):
    """A result of the caller for one of its cases."""

    model_config = ConfigDict(defer_build=True)

    job_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    result: EvaluationResult
    elapsed_ms: float | None = None
