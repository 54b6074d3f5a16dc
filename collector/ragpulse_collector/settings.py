"""`ragpulse.toml`: read once at start, refused with the line and the nearest valid name when anything is off."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ragpulse_collector import environment

Role = Literal["ingest", "evaluate", "maintain"]
Scope = Literal["ingest", "read", "admin"]


class SettingsError(ValueError):
    """The configuration cannot be used; the message names the place and the mend."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class ApiKey(_Section):
    """One key; only its hash is kept."""

    name: str
    scopes: tuple[Scope, ...] = ("ingest",)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CollectorSettings(_Section):
    """The `[collector]` table: where to listen, what to keep, whom to let in."""

    host: str = "127.0.0.1"
    """Anything but loopback needs `api_keys`."""
    port: int = Field(4318, ge=0, le=65535)
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """None: 4317 where the [grpc] extra is installed and the port is free, else no gRPC."""
    grpc: bool = True
    """False: no gRPC, whatever is installed."""
    db: str = "ragpulse.duckdb"
    """A file, or `ducklake:...` for a lake that several collectors share (docs/scale.md)."""
    max_body_mb: int = Field(64, ge=1, le=1024)
    """Cap of one request body, counted while inflating."""
    retention_days: float = Field(30, gt=0)
    retention_gb: float = Field(10, gt=0)
    api_keys: tuple[ApiKey, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted besides loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may send spans (CORS); none by default."""
    roles: tuple[Role, ...] = ("ingest", "evaluate", "maintain")
    settle_s: float = Field(2, ge=0)
    """A unit is decided this long after its root span was stored ..."""
    quiet_s: float = Field(30, ge=0)
    """... or after this long without any new span where no root arrived."""
    sql_timeout_s: float = Field(30, gt=0)
    sql_max_rows: int = Field(100_000, ge=1)
    tls_certificate: str | None = None
    tls_key: str | None = None
    redact: tuple[str, ...] = ()
    """Regular expressions; matches in texts are masked before anything is stored."""
    log_format: Literal["text", "json"] = "text"

    @property
    def on_a_lake(self) -> bool:
        """Whether other processes may share the store."""
        return self.db.startswith("ducklake:")


class JudgeSettings(_Section):
    """The `[judge]` table: no judge is ever called without a model named here or by `--judge`."""

    model: str | None = None
    budget_usd_per_day: float = Field(1.0, ge=0)
    concurrency: int = Field(4, ge=1, le=512)
    requests_per_minute: int | None = Field(None, ge=1)
    api_base: str | None = None

    @property
    def address(self) -> str | None:
        """Where the judge is asked: `api_base`, or the model's own `http://host:port/v1#model`."""
        written = self.model if self.model and self.model.startswith(("http://", "https://")) else None
        return written.partition("#")[0] if written else self.api_base

    @property
    def is_local(self) -> bool:
        """Whether the judge runs on this computer (a loopback address): it needs no key and has no budget."""
        return is_loopback(urlsplit(self.address or "").hostname or "")


class Price(_Section):
    """USD per million tokens of one model."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0)


class EvaluatorFiles(_Section):
    """The `[evaluators]` table: Python modules and files to load evaluators from, and what each evaluator may use."""

    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
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
    use: str

    @property
    def params(self) -> dict[str, Any]:
        """Everything beside name and use: the evaluator's parameters."""
        return dict(self.model_extra or {})


class Stratum(_Section):
    """A slice of the traffic with a rate of its own."""

    where: str
    rate: float = Field(ge=0, le=1)


class RuleSettings(_Section):
    """One `[[rule]]`: which units are evaluated online, by what, at which rate."""

    name: str = Field(min_length=1)
    evaluators: tuple[str, ...] = Field(min_length=1)
    rate: float = Field(ge=0, le=1)
    where: str | None = None
    strata: tuple[Stratum, ...] = ()

    @field_validator("evaluators")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))


class MonitorSettings(_Section):
    """One `[[monitor]]`: when to alert, and whom."""

    name: str
    metric: str
    condition: str
    """`< 0.85`, `> 3000`, or `change` (a shift either way from the baseline)."""
    group_by: tuple[str, ...] = ()
    where: str | None = None
    window: str = "1h"
    baseline: str = "7d"
    false_alarms_per_year: float = Field(4, gt=0)
    webhook: str | None = None
    slack: str | None = None
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""


class TargetSettings(_Section):
    """One `[[target]]` (SLO): where a metric should be; the overview says whether it surely is."""

    metric: str
    min: float | None = None
    max: float | None = None
    """Exactly one of the two."""
    where: str | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.min is None) == (self.max is None):
            raise ValueError("a target has either min or max")
        return self


class DriftSettings(_Section):
    """The `[drift]` table: how often frozen answers are judged again, and whom to tell that a judge moved."""

    every: str = "7d"
    """`"never"`: only when asked."""
    webhook: str | None = None
    slack: str | None = None
    secret: str | None = None


class Settings(_Section):
    """Everything the collector is told."""

    collector: CollectorSettings = CollectorSettings()
    judge: JudgeSettings = JudgeSettings()
    prices: dict[str, Price] = {}
    evaluators: EvaluatorFiles = EvaluatorFiles()
    evaluator: tuple[EvaluatorSpec, ...] = ()
    rule: tuple[RuleSettings, ...] = ()
    monitor: tuple[MonitorSettings, ...] = ()
    target: tuple[TargetSettings, ...] = ()
    drift: DriftSettings = DriftSettings()
    source: str | None = None
    """The file these came from, for messages."""

    @field_validator("evaluator", "rule", "monitor")
    @classmethod
    def _unique_names(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [entry.name for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice")
        return entries

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
        """Return a copy in which the options given on the command line (not None) win."""
        given = {key: value for key, value in options.items() if value is not None}
        merged = getattr(self, section).model_dump() | given
        try:
            part = type(getattr(self, section)).model_validate(merged)
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(f"--{'-'.join(map(str, first['loc']))}: {first['msg']}") from error
        return self.model_copy(update={section: part})

    def check(self) -> None:
        """Refuse combinations that would be unsafe to start with; raises SettingsError."""
        host = self.collector.host
        if not is_loopback(host) and not self.collector.api_keys:
            raise SettingsError(
                f"refusing to listen on {host} without API keys: run `ragpulse key --scope ingest` and add the printed "
                "line to [collector] api_keys, or keep --host 127.0.0.1"
            )
        if bool(self.collector.tls_certificate) != bool(self.collector.tls_key):
            raise SettingsError("[collector] tls_certificate and tls_key go together")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can only be reached from this computer."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (None: defaults) and the environment, which wins.

    Raises SettingsError naming file, line and nearest valid name, or the variable.
    """
    text, data = ("", {}) if path is None else _read(path)
    try:
        given = environment.read(os.environ if environ is None else environ, Settings)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    for variable, value in given.items():
        *tables, key = variable.place
        target = data.setdefault(tables[0], {}) if tables else data
        target[key] = value
    try:
        return Settings.model_validate(data if path is None else data | {"source": str(path)})
    except ValidationError as error:
        said = [_explain_all(path, text, given, dict(item)) for item in error.errors()]
        raise SettingsError("\n".join(said)) from error


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _explain_all(
    path: Path | None, text: str, given: Mapping[environment.Variable, Any], error: Mapping[str, Any]
) -> str:
    """Name the variable where the value came from one, else the line of the file."""
    location = tuple(str(part) for part in error["loc"])
    variable = next((each for each in given if location[: len(each.place)] == each.place), None)
    if variable is not None:
        return f"{variable.name}={given[variable]!r}: {error['msg']}"
    return _explain(path, text, error) if path else f"{'.'.join(location)}: {error['msg']}"


def _explain(path: Path, text: str, error: Mapping[str, Any]) -> str:
    location: Sequence[str | int] = error["loc"]
    where = f"{path}:{_line_of(text, location)}"
    dotted = ".".join(str(part) for part in location)
    if error["type"] != "extra_forbidden":
        return f"{where}: {dotted}: {error['msg']} (got {error['input']!r})"
    near = difflib.get_close_matches(str(location[-1]), _valid_names(location[:-1]), n=1, cutoff=0.5)
    mend = f"; did you mean {near[0]!r}?" if near else f"; valid: {', '.join(sorted(_valid_names(location[:-1])))}"
    return f"{where}: unknown key {dotted!r}{mend}"


def _valid_names(location: Sequence[str | int]) -> list[str]:
    model: Any = Settings
    for part in location:
        if isinstance(part, int):
            continue
        model = _model_in(model.model_fields[part].annotation)
    return [name for name in model.model_fields if name != "source"]


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(found for found in map(_model_in, annotation.__args__) if found is not None)


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """Find the line of a key: the table header first, then the key inside it (best effort, never raises)."""
    table = str(location[0])
    index = location[1] if len(location) > 1 and isinstance(location[1], int) else 0
    header = re.compile(rf"^\s*\[\[?\s*{re.escape(table)}\b")
    keys = [str(part) for part in location if isinstance(part, str)]
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines, 1) if header.match(line)]
    if not starts:
        return next((n for n, line in enumerate(lines, 1) if re.match(rf"^\s*{re.escape(table)}\b", line)), 1)
    start = starts[min(index, len(starts) - 1)]
    for number, line in enumerate(lines[start:], start + 1):
        if re.match(r"^\s*\[", line):
            break
        if re.match(rf'^\s*"?{re.escape(keys[-1])}"?\s*[=.]', line):
            return number
    return start
