"""The tables about judges and their prices, evaluators and rules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ragpulse_collector.settings.collector import Section


class JudgeSettings(Section):
    """The `[judge]` table: no judge is ever called without a model named here or by `--judge`."""

    model: str | None = None
    """Any litellm name, or `http://host:port/v1#model`."""
    budget_usd_per_day: float = Field(1.0, ge=0)
    """No judge is asked beyond it."""
    concurrency: int = Field(4, ge=1, le=512)
    """Questions at once, for each judge."""
    requests_per_minute: int | None = Field(None, ge=1)
    """At most so many questions, for each judge; none: no limit."""
    api_base: str | None = None
    """Another address than the provider's own."""
    max_tokens: int | None = Field(None, ge=1)
    """The longest reply, reasoning included: sent with every request and reserved for it. None: 4,096."""

    @property
    def address(self) -> str | None:
        """Where the judge is asked: `api_base`, or the model's own `http://host:port/v1#model`."""
        model = self.model or ""
        return model.partition("#")[0] if model.startswith(("http://", "https://")) else self.api_base

    @property
    def is_local(self) -> bool:
        """Whether the judge runs on this computer (a loopback address): it needs no key and no price."""
        from ragpulse_evaluators.judges.protocol import is_loopback

        return is_loopback(self.address)

    @property
    def names(self) -> frozenset[str]:
        """What the model may be called where it is priced: as configured, as litellm names it, or as the URL does."""
        model = self.model or ""
        return frozenset((model, f"openai/{model}", model.rpartition("#")[2]))


class TierPrice(Section):
    """USD per million tokens."""

    input: float = Field(ge=0)
    """Input tokens."""
    output: float = Field(ge=0)
    """Output tokens."""
    cached_input: float | None = Field(None, ge=0)
    """Input read from the cache; without it as `input`."""
    cache_write: float | None = Field(None, ge=0)
    """Input written to the cache; without it as `input`."""


class Price(TierPrice):
    """USD per million tokens of one model."""

    tiers: dict[str, TierPrice] = {}
    """Prices of service tiers (`batch`, `flex`, `priority`), by the name that the span states."""


class EvaluatorFiles(Section):
    """The `[evaluators]` table: Python modules and files to load evaluators from, and what each evaluator may use."""

    modules: tuple[str, ...] = ()
    """Python modules to import."""
    files: tuple[str, ...] = ()
    """Python or YAML files, relative to this file."""
    time_limit_s: float = Field(30, gt=0)
    """For one case; beyond it the evaluator's process is killed and the result is an `error`."""
    memory_limit_mb: int = Field(2048, ge=256)
    """Address space of an evaluator's process (POSIX only)."""
    processes: int = Field(2, ge=1, le=64)
    """How many cases of one evaluator are scored at once, each in a process."""


class EvaluatorSpec(BaseModel):
    """One `[[evaluator]]`: a registered evaluator under a new name with fixed parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    """The new name."""
    use: str
    """The registered evaluator; all other keys are its parameters."""
    judge: str | None = None
    """A judge of its own, named like `[judge] model`; it is paid from the same budget. None: the judge of `[judge]`."""

    @property
    def params(self) -> dict[str, Any]:
        """Everything beside name, use and judge: the evaluator's parameters."""
        return dict(self.model_extra or {})


class Stratum(Section):
    """A slice of the traffic with a rate of its own."""

    where: str
    """SQL condition over the columns of `traces`."""
    rate: float = Field(ge=0, le=1)
    """Share of these units that is evaluated."""


class RuleSettings(Section):
    """One `[[rule]]`: which units are evaluated online, by what, at which rate."""

    name: str = Field(min_length=1)
    """Shown with each decision."""
    evaluators: tuple[str, ...] = Field(min_length=1)
    """Names of evaluators."""
    rate: float = Field(ge=0, le=1)
    """Share of the units that is evaluated."""
    where: str | None = None
    """SQL condition over the columns of `traces`."""
    strata: tuple[Stratum, ...] = ()
    """The first that holds sets the rate."""
    unit: Literal["trace", "session"] = "trace"
    """`session`: the last turn of each session, once it has been quiet for `[collector] session_quiet_s`."""
    budget_usd_per_day: float | None = Field(None, ge=0)
    """What this rule may spend on judges, within `[judge] budget_usd_per_day`; None: only that limits it."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_judge(cls, values: Any) -> Any:
        if isinstance(values, dict) and "judge" in values:
            raise ValueError(
                'a rule names no judge: add an [[evaluator]] with name = "...", use = "faithfulness" and judge = "...",'
                " and name it in the rule's evaluators"
            )
        return values

    @field_validator("evaluators")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))
