"""The settings of the collector: tables of `ragpulse.toml`, their keys and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, field_validator

from ragpulse_collector.settings.collector import (
    EVERYTHING,
    ApiKey,
    Binding,
    CollectorSettings,
    Role,
    Scope,
    Section,
    SettingsError,
    message,
)
from ragpulse_collector.settings.evaluation import (
    EvaluatorFiles,
    EvaluatorSpec,
    JudgeSettings,
    Price,
    RuleSettings,
    Stratum,
    TierPrice,
)
from ragpulse_collector.settings.monitoring import (
    DestinationSettings,
    DriftSettings,
    MonitorSettings,
    SmtpSettings,
    TargetSettings,
)

__all__ = [
    "EVERYTHING",
    "ApiKey",
    "Binding",
    "CollectorSettings",
    "DestinationSettings",
    "DriftSettings",
    "EvaluatorFiles",
    "EvaluatorSpec",
    "JudgeSettings",
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
    "message",
]


class Settings(Section):
    """All settings of the collector."""

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
    source: str | None = None
    """The file these came from, for messages."""

    @field_validator("evaluator", "rule", "monitor", "destination")
    @classmethod
    def _unique_names(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [entry.name for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice")
        return entries

    @property
    def judges(self) -> list[JudgeSettings]:
        """The judge of `[judge]`, if there is one, and those of single evaluators."""
        models = dict.fromkeys(spec.judge for spec in self.evaluator if spec.judge not in (None, self.judge.model))
        own = [JudgeSettings(model=model) for model in models]
        return own if self.judge.model is None else [self.judge, *own]

    def path(self) -> Path | None:
        """Return the absolute path of the file these came from; None for defaults."""
        return None if self.source is None else Path(self.source).absolute()

    def code(self) -> list[str]:
        """Return the Python files and modules that the configuration file loads, which runs their code."""
        path = self.path()
        if path is None:
            return []
        files = [str(path.parent / file) for file in self.evaluators.files if file.endswith(".py")]
        return [*files, *(f"module {module}" for module in self.evaluators.modules)]

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
        return self.model_copy(update={section: table})

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
