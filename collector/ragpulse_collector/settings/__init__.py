"""The settings of the collector: tables of `ragpulse.toml`, their keys and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator

from ragpulse_collector.settings.digest import DigestSettings
from ragpulse_collector.settings.tables import (
    BINDING,
    EVERYTHING,
    ApiKey,
    Binding,
    CollectorSettings,
    EvaluatorFiles,
    EvaluatorSpec,
    JudgeModel,
    JudgeSettings,
    Price,
    Role,
    RuleSettings,
    Scope,
    Section,
    SettingsError,
    Stratum,
    TierPrice,
    message,
)
from ragpulse_collector.settings.zones import ZoneName

Location = tuple[str | int, ...]
"""A place in the settings: table, number of an entry, keys."""


class DestinationSettings(Section):
    """One `[[destination]]`: where messages go, by the name that monitors use in `notify`."""

    name: str
    """Used in `notify`."""
    webhook: str | None = None
    """Address that receives JSON."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""
    slack: str | None = None
    """Address of an incoming webhook."""
    pagerduty: str | None = None
    """The routing key of an Events API v2 integration."""
    pagerduty_url: str | None = None
    """Another address than PagerDuty's own, for a relay."""
    email: tuple[str, ...] = ()
    """Addresses; needs `[smtp]`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.webhook, self.slack, self.pagerduty, self.email))) != 1:
            raise ValueError("a destination has exactly one of webhook, slack, pagerduty, email")
        return self


class SmtpSettings(Section):
    """The `[smtp]` table: the mail server for destinations with `email`."""

    host: str = "localhost"
    """The mail server."""
    port: int = Field(587, ge=1, le=65535)
    """Its port."""
    sender: str = "ragpulse@localhost"
    """The From address."""
    user: str | None = None
    """None: no login."""
    password: str | None = None
    """For the login."""
    starttls: bool = True
    """Encrypt the connection."""


class MonitorSettings(Section):
    """One `[[monitor]]`: when to alert, and whom."""

    name: str = Field(min_length=1)
    """Shown in messages."""
    metric: str
    """As in `GET metrics`."""
    condition: str
    """`< 0.85`, `> 3000`, `change` (a shift either way from the baseline), or `no data`."""
    notify: tuple[str, ...] = ()
    """Names of destinations."""
    min_n: int = Field(0, ge=0)
    """With fewer answers or requests in the window the monitor is undecided."""
    group_by: tuple[str, ...] = ()
    """One alert for each value."""
    where: str | None = None
    """SQL condition over the columns of `traces`."""
    window: str = "1h"
    """The time that a look covers."""
    baseline: str = "28d"
    """How far back `change` looks for what is usual. Counts (requests, errors) need 4d or more."""
    false_alarms_per_year: float = Field(4, gt=0)
    """How many are acceptable."""
    tz: ZoneName | None = None
    """Your users' IANA zone: `change` compares the same local hours. None: `tz` of `[collector]`."""
    webhook: str | None = None
    """A destination of this monitor alone."""
    slack: str | None = None
    """A destination of this monitor alone."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""


class TargetSettings(Section):
    """One `[[target]]` (SLO): where a metric should be; the overview says whether it surely is."""

    metric: str
    """As in `GET metrics`."""
    min: float | None = None
    """The least acceptable value."""
    max: float | None = None
    """Exactly one of the two."""
    where: str | None = None
    """SQL condition over the columns of `traces`."""
    corrected: bool = True
    """Whether enough labels of people correct a judge's figure before it decides."""

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.min is None) == (self.max is None):
            raise ValueError("a target has either min or max")
        return self


ACCEPTANCE = (
    "thumbs", "thumb", "thumbs_up", "thumbs_up_down", "user_thumbs", "feedback", "user_feedback", "user-feedback",
    "like", "liked", "vote", "upvote", "helpful", "accepted", "acceptance",
)  # fmt: skip
"""Names of scores by which people usually say whether an answer was good."""


class DocumentSettings(Section):
    """The `[documents]` table: what the metadata of retrieved documents say."""

    updated_at: str | None = None
    """The field with the time of the last change; by default the usual names are looked for (`updated_at`, ...)."""


class FeedbackSettings(Section):
    """The `[feedback]` table: what acceptance is, and the scales of other scores of people."""

    acceptance: tuple[str, ...] = ACCEPTANCE
    """Names of scores that are acceptance: 0 to 1, or -1 for a thumb down; other values are left out."""
    scale: dict[str, tuple[float, float]] = {}
    """Name to lowest and highest value; others are stored and left out of the series."""

    @property
    def metrics(self) -> set[str]:
        """The metrics of the names in these settings: they may be asked for before the first score."""
        return {f"feedback:{name}" for name in (*self.acceptance, *self.scale)}

    @field_validator("scale")
    @classmethod
    def _ascending(cls, scale: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in scale.items():
            if not low < high:
                raise ValueError(f"scale {name!r}: write the lowest value before the highest, as in [1, 5]")
        return scale


class DriftSettings(Section):
    """The `[drift]` table: how often frozen answers are judged again, and whom to tell that a judge moved."""

    every: str = "7d"
    """`12h`, `7d`, or `never`: only when somebody asks."""
    webhook: str | None = None
    """Who receives the message."""
    slack: str | None = None
    """Who receives the message."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""

    @field_validator("every")
    @classmethod
    def _interval(cls, every: str) -> str:
        if not re.fullmatch(r"never|(?=.*[1-9])\d+(\.\d+)?\s*[smhdw]", every):
            raise ValueError('write how often, as in "12h" or "7d", or "never"')
        return every


STATIC = "static"
"""The embedder that needs no model of its own."""


class TopicSettings(Section):
    """The `[topics]` table: what questions are about, found in the background."""

    enabled: bool | None = None
    """None: where the extra `[topics]` is installed. True refuses to start without it."""
    embedder: str = Field(STATIC, pattern=rf"^({STATIC}|[\w.]+:\w+)$")
    """`static` word vectors, or `module:function` that takes texts and returns a matrix with rows of length one."""
    refit_days: float = Field(7.0, ge=0)
    """The time between fits; 0: only when somebody asks."""
    least_users: int = Field(5, ge=1)
    """How many users asked a question, or used a word, that is shown."""


__all__ = [
    "ACCEPTANCE",
    "BINDING",
    "EVERYTHING",
    "STATIC",
    "ApiKey",
    "Binding",
    "CollectorSettings",
    "DestinationSettings",
    "DigestSettings",
    "DriftSettings",
    "EvaluatorFiles",
    "EvaluatorSpec",
    "FeedbackSettings",
    "JudgeModel",
    "JudgeSettings",
    "Location",
    "MonitorSettings",
    "Price",
    "Role",
    "RuleSettings",
    "Scope",
    "Settings",
    "SettingsError",
    "SmtpSettings",
    "Stratum",
    "TargetSettings",
    "TierPrice",
    "TopicSettings",
    "message",
]


class Settings(Section):
    """All settings of the collector."""

    lead: str | None = None
    """The evaluator that pages, alerts and assistants name first. None: a judge's, else a local model's, else the
    built-in check, by the rules."""
    offline: bool = True
    """Whether the free checks run on everything, beside your rules. A rule decides about the checks that it names."""
    collector: CollectorSettings = CollectorSettings()
    judge: JudgeSettings = JudgeSettings()
    prices: dict[str, Price] = {}
    evaluators: EvaluatorFiles = EvaluatorFiles()
    evaluator: tuple[EvaluatorSpec, ...] = ()
    rule: tuple[RuleSettings, ...] = ()
    monitor: tuple[MonitorSettings, ...] = ()
    destination: tuple[DestinationSettings, ...] = ()
    smtp: SmtpSettings = SmtpSettings()
    target: tuple[TargetSettings, ...] = ()
    drift: DriftSettings = DriftSettings()
    digest: DigestSettings = DigestSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    documents: DocumentSettings = DocumentSettings()
    topics: TopicSettings = TopicSettings()
    source: str | None = None
    """The file these came from, for messages."""
    _places: Mapping[Location, str] = PrivateAttr(default_factory=dict)
    """Where values were given: `ragpulse.toml:3`, `RAGPULSE_PORT`, `--port`."""

    @field_validator("evaluator", "rule", "monitor", "destination")
    @classmethod
    def _unique_names(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [entry.name for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice")
        return entries

    @field_validator("digest")
    @classmethod
    def _known_recipients(cls, digest: DigestSettings, info: ValidationInfo) -> DigestSettings:
        known = {destination.name: destination for destination in info.data.get("destination", ())}
        for name in digest.to:
            if name not in known:
                raise ValueError(f"to: no destination {name!r}; there are: {', '.join(known) or 'none'}")
            if known[name].pagerduty:
                raise ValueError(f"to: {name!r} is PagerDuty, and a digest is no incident")
        return digest

    @property
    def judges(self) -> list[JudgeModel]:
        """The judge of `[judge]`, if there is one, and those of single evaluators."""
        own = [self.judge_of(spec.judge) for spec in self.evaluator if spec.judge is not None]
        return list(dict.fromkeys(judge for judge in (self.judge, *own) if judge.model is not None))

    def judge_of(self, judge: JudgeModel | str) -> JudgeModel:
        """Return the judge that is meant: the configured one of this name or model, else one with these settings alone.

        The limit of replies in `[judge]` is that of every judge without an own one.
        """
        asked = JudgeModel(model=judge) if isinstance(judge, str) else judge
        if asked == JudgeModel(model=asked.model):
            tables = (self.judge, *(spec.judge for spec in self.evaluator if spec.judge not in (None, asked)))
            asked = next((table for table in tables if table and asked.model in (table.name, table.model)), asked)
        return asked if asked.max_tokens else asked.model_copy(update={"max_tokens": self.judge.max_tokens})

    @property
    def places(self) -> Mapping[Location, str]:
        """Where values were given, by table, number of an entry, and key."""
        return self._places

    def placed(self, places: Mapping[Location, str]) -> Settings:
        """Return a copy that knows where these values were given."""
        copy = self.model_copy()
        copy._places = {**self._places, **places}
        return copy

    def path(self) -> Path | None:
        """Return the absolute path of the file these came from; None for defaults."""
        return None if self.source is None else Path(self.source).absolute()

    def code(self) -> list[str]:
        """Return the Python files and modules that the configuration file loads, which runs their code."""
        path = self.path()
        if path is None:
            return []
        files = [str(path.parent / file) for file in self.evaluators.files if file.endswith(".py")]
        modules = [*self.evaluators.modules, *([] if self.topics.embedder == STATIC else [self.topics.embedder])]
        return [*files, *(f"module {module}" for module in modules)]

    def with_options(self, section: Literal["collector", "judge"], options: Mapping[str, Any]) -> Settings:
        """Return a copy in which the options of the command line (not None) win."""
        table = getattr(self, section)
        values = {key: value for key, value in options.items() if value is not None}
        try:
            table = type(table).model_validate(table.model_dump() | values)
        except ValidationError as error:
            first = error.errors()[0]
            option = str(first["loc"][0]).replace("_", "-")
            raise SettingsError(f"--{option}: {message(first)}") from error
        places: dict[Location, str] = {(section, key): f"--{key.replace('_', '-')}" for key in values}
        return self.model_copy(update={section: table}).placed(places)

    def check(self) -> None:
        """Refuse combinations that would be unsafe to start with; raises SettingsError."""
        host = self.collector.host
        if self.collector.needs_key and not self.collector.api_keys:
            raise SettingsError(
                f"refusing to listen on {host} without API keys: run `ragpulse key --scope ingest` and add the printed "
                "line to [collector] api_keys, or keep --host 127.0.0.1"
            )
        if bool(self.collector.tls_certificate) != bool(self.collector.tls_key):
            raise SettingsError("[collector] tls_certificate and tls_key go together")
        for path in filter(None, (self.collector.tls_certificate, self.collector.tls_key)):
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise SettingsError(f"[collector] tls_certificate, tls_key: {path}: {error.strerror}") from error
