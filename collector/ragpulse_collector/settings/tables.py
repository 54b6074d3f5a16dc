"""The tables about the collector, its keys, judges and their prices, evaluators and rules."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_core import ErrorDetails

from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings.zones import ZoneName

Scope = Literal["ingest", "read", "admin"]


class SettingsError(Invalid):
    """The configuration cannot be used; the message names the place and the fix."""


def message(error: ErrorDetails) -> str:
    """Return the sentence of pydantic in the words of TOML."""
    words = error["msg"].removeprefix("Value error, ")
    return words.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")


class Section(BaseModel):
    """A table of `ragpulse.toml`: its keys are known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Binding(NamedTuple):
    """The services and environments that a key is bound to; an empty tuple allows all."""

    services: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()

    def allows(self, service: str | None, environment: str | None) -> bool:
        """Return whether data of this service and environment belongs to the key."""
        return (not self.services or service in self.services) and (
            not self.environments or environment in self.environments
        )


BINDING = "ragpulse.binding"
"""The key of a request's ASGI scope with the binding of its API key, None for an unbound one."""
EVERYTHING = Binding()


class ApiKey(Section):
    """One key; only its hash is kept."""

    name: str
    """Written into the audit log."""
    scopes: tuple[Scope, ...] = ("ingest",)
    """`admin` allows everything."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hash of the key, in hex."""
    services: tuple[str, ...] = ()
    """Sends and reads only these services; all where empty."""
    environments: tuple[str, ...] = ()
    """Sends and reads only these environments; all where empty."""

    @model_validator(mode="after")
    def _not_bound_admin(self) -> Self:
        if self.binding and "admin" in self.scopes:
            raise ValueError(
                f"the key {self.name!r} has the scope admin: it cannot be bound to services or environments"
            )
        return self

    @property
    def binding(self) -> Binding | None:
        """What the key is bound to; None for a key of everything."""
        return Binding(self.services, self.environments) if self.services or self.environments else None

    @classmethod
    def generated(cls, name: str, scopes: Sequence[Scope], binding: Binding = EVERYTHING) -> tuple[str, ApiKey]:
        """Return a new secret, to be shown once, and the key that holds its hash."""
        secret = "rp_" + secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        return secret, cls(name=name, scopes=tuple(scopes), sha256=digest, **binding._asdict())


_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
Role = Literal["ingest", "evaluate", "maintain"]


class CollectorSettings(Section):
    """The `[collector]` table: where to listen, what to keep, whom to let in."""

    host: str = "127.0.0.1"
    """Anything but loopback needs `api_keys`."""
    port: int = Field(4318, ge=0, le=65535)
    """OTLP/HTTP, API and pages; 0 is any free port."""
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """None: 4317 where the `[grpc]` extra is installed and the port is free, else no gRPC."""
    grpc: bool = True
    """False: no gRPC, whatever is installed."""
    db: str = "ragpulse.duckdb"
    """A file, or `ducklake:...` for a lake that several collectors share."""
    max_body_mb: int = Field(64, ge=1, le=1024)
    """Cap of one request body, counted while inflating."""
    retention_days: float = Field(30, gt=0)
    """Older traces are deleted."""
    retention_gb: float = Field(10, gt=0)
    """Beyond this much live data the oldest traces are deleted."""
    retention_days_by_service: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Services whose traces go earlier than after `retention_days`."""
    api_keys: tuple[ApiKey, ...] = ()
    """`ragpulse key` prints an entry."""
    login_days: float = Field(30, gt=0)
    """A login with a key ends after this time; a restart ends it too."""
    generate_key: bool = False
    """Make a key at the first start where one is needed: it is printed once, its hash kept in `<db>.key`."""
    published_on_loopback: bool = False
    """For a container whose ports are published on the host's loopback only (`-p 127.0.0.1:...`): needs no key."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted besides loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may send spans (CORS); none by default."""
    public_url: str | None = None
    """Where people open the pages (`https://tools.example.org/rag`): accepted as host; links in messages lead there."""
    root_path: str | None = None
    """The path below which a proxy hosts ragpulse (`/rag`); None: the path of `public_url`."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that are believed about the scheme and host a browser asked for."""
    roles: tuple[Role, ...] = ("ingest", "evaluate", "maintain")
    """What this process does; several processes share a lake."""
    settle_s: float = Field(2, ge=0)
    """A unit is decided this long after its root span was stored ..."""
    quiet_s: float = Field(30, ge=0)
    """... or after this long without any new span where no root arrived."""
    session_quiet_s: float = Field(1800, ge=0)
    """A session whose last turn ended so long ago is evaluated by rules with `unit = "session"`."""
    sql_timeout_s: float = Field(30, gt=0)
    """A query of a user that takes longer is stopped."""
    sql_max_rows: int = Field(100_000, ge=1)
    """Rows of one answer; beyond it `truncated` is true."""
    tls_certificate: str | None = None
    """File with the certificate, for HTTP and gRPC."""
    tls_key: str | None = None
    """File with its key."""
    price_table: str = "ragpulse.prices.json"
    """What `ragpulse prices update` writes; where the file is absent the installed table of genai-prices holds."""
    redact: tuple[str, ...] = ()
    """Regular expressions; matches in texts are masked before anything is stored."""
    log_format: Literal["text", "json"] = "text"
    """The log on standard error."""
    tz: ZoneName | None = None
    """Your users' IANA zone (`Europe/Berlin`), for local days on pages and in monitors. None: pages show UTC."""

    @field_validator("db")
    @classmethod
    def _file_or_lake(cls, db: str) -> str:
        if not db.startswith("ducklake:") and re.match(r"[a-z][a-z0-9+]+:", db):
            raise ValueError("write the path of a file, or ducklake:... for a lake (docs/storage.md)")
        return db

    @field_validator("public_url")
    @classmethod
    def _absolute(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("write the whole address, as in https://tools.example.org/rag")
        return url

    @field_validator("root_path")
    @classmethod
    def _rooted(cls, path: str | None) -> str | None:
        if path and not _ROOT_PATH.fullmatch(path):
            raise ValueError("begin with / and do not end with it, as in /rag")
        return path

    @field_validator("redact")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for number, pattern in enumerate(patterns, 1):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"pattern {number} is no regular expression: {error}") from error
        return patterns

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy, strict=False)  # its ValueError names the text
        return proxies

    @model_validator(mode="after")
    def _not_longer(self) -> Self:
        for service, days in self.retention_days_by_service.items():
            if days > self.retention_days:
                raise ValueError(f"retention_days_by_service: {service!r} has more than retention_days: raise that")
        return self

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key: others than this computer can reach the port, or keys are configured."""
        from ragpulse_evaluators.judges.protocol import is_loopback  # 40 ms that most commands do not need

        return bool(self.api_keys) or not (is_loopback(self.host) or self.published_on_loopback)

    @property
    def root(self) -> str:
        """The path in front of every path: `` or `/rag`."""
        path = urlsplit(self.public_url or "").path if self.root_path is None else self.root_path
        return path.rstrip("/")

    @property
    def pages_url(self) -> str:
        """Where links in messages lead."""
        return (self.public_url or f"http://127.0.0.1:{self.port}").rstrip("/")

    @property
    def on_a_lake(self) -> bool:
        """Whether other processes may share the store."""
        return self.db.startswith("ducklake:")


_EFFORTS = "none|minimal|low|medium|high|xhigh|max|default"
_TIERS = "auto|default|standard|standard_only|flex|priority|scale|on_demand|performance|batch"
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


def _variable(key: str, name: str) -> str:
    if value := os.environ.get(name):
        return value
    if not _NAME.fullmatch(name):  # it may be the key itself
        raise SettingsError(f"{key}: write the name of an environment variable that is set, as in OPENAI_API_KEY")
    raise SettingsError(f"{key}: the environment variable {name} is not set")


def _filled(key: str, value: SecretStr) -> str:
    return _VARIABLE.sub(lambda found: _variable(key, found[1]), value.get_secret_value())


class JudgeModel(Section):
    """One judge: the `[judge]` table, or the `judge` of an `[[evaluator]]`."""

    model: str | None = None
    """`ollama/NAME`, `http://host:port/v1#model`, or any litellm name."""
    name: str | None = None
    """Stands for model and address in the id, so that the series goes on when the judge moves."""
    api_base: str | None = None
    """Another address than the provider's own."""
    api_key_env: str | None = None
    """Name of the environment variable with the key. None: the provider's own key, for its own host only."""
    max_tokens: int | None = Field(None, ge=1)
    """The longest reply, reasoning included: sent with every request and reserved for it. None: 4,096."""
    structured: Literal["json_schema", "json_object", "none"] | None = None
    """How JSON is asked for. None: as the server takes it, by schema first."""
    limit_parameter: str | None = None
    """The server's name for the limit of a reply. None: `max_tokens`, or `max_completion_tokens` if that is refused."""
    omit: tuple[str, ...] = ()
    """Parameters that the server does not take, such as `temperature`."""
    timeout_s: float = Field(120, gt=0, le=3600)
    """The longest wait for one reply."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Part of the judge's id. None: 0, where the model takes one."""
    reasoning_effort: str | None = Field(None, pattern=f"^({_EFFORTS})$")
    """How long a reasoning model thinks (`low`, `high`, ...); part of the judge's id. None: as the server does."""
    service_tier: str | None = Field(None, pattern=f"^({_TIERS})$")
    """The provider's class of service and price (`flex`, `priority`, ...). None: as the server does."""
    window: int | None = Field(None, ge=1024)
    """Tokens that the judge reads, the reply included: longer contexts are cut to it. None: as the server says."""
    headers: dict[HeaderName, SecretStr] = {}
    """Sent with each question. `${NAME}` in a value stands for an environment variable. Never shown or stored."""
    query: dict[str, SecretStr] = {}
    """Parameters added to the address of a judge named by it, with `${NAME}` as in `headers`. Never shown or stored."""

    def __hash__(self) -> int:
        return hash((self.model, self.name, self.api_base))

    @field_validator("headers", "query")
    @classmethod
    def _one_line(cls, values: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in values.items():
            if not (value.get_secret_value().isascii() and value.get_secret_value().isprintable()):
                raise ValueError(f"{name}: a value is one line of ASCII")
        return values

    @model_validator(mode="before")
    @classmethod
    def _no_key(cls, values: Any) -> Any:
        if isinstance(values, dict) and "api_key" in values:
            raise ValueError('a key is not written here: name its variable, as in api_key_env = "OPENAI_API_KEY"')
        return values

    @property
    def address(self) -> str | None:
        """Where the judge is asked: `api_base`, the model's own `http://host:port/v1#model`, or Ollama's."""
        model = (self.model or "").strip()
        if model.startswith("ollama/"):
            from ragpulse_evaluators.judges.addresses import split_judge

            return (split_judge(model, self.api_base) or (None,))[0]
        return model.partition("#")[0] if model.lower().startswith(("http://", "https://")) else self.api_base

    @property
    def is_local(self) -> bool:
        """Whether the judge runs on this computer (a loopback address): it needs no key and no price."""
        from ragpulse_evaluators.judges.protocol import is_loopback

        return is_loopback(self.address)

    @property
    def names(self) -> frozenset[str]:
        """What the model may be called where it is priced: as configured, as litellm names it, or as the URL does."""
        model = self.model or ""
        return frozenset((model, f"openai/{model}", model.rpartition("#")[2].strip(), model.removeprefix("ollama/")))

    @property
    def access(self) -> dict[str, Any]:
        """The options of the judge, with its secrets; raises SettingsError where a variable of one is not set."""
        options = self.model_dump(include=JudgeModel.model_fields.keys() - {"model", "api_key_env"}, exclude_none=True)
        for table in ("headers", "query"):
            options[table] = {name: _filled(table, value) for name, value in options[table].items()}
        return options | ({"api_key": _variable("api_key_env", self.api_key_env)} if self.api_key_env else {})


class JudgeSettings(JudgeModel):
    """The `[judge]` table: no judge is ever called without a model named here or by `--judge`."""

    budget_usd_per_day: float = Field(1.0, ge=0)
    """No judge is asked beyond it."""
    budget_usd_per_month: float | None = Field(None, ge=0)
    """Nor beyond this in a calendar month (UTC); its days share it."""
    concurrency: int = Field(4, ge=1, le=512)
    """Questions at once, for each judge."""
    requests_per_minute: int | None = Field(None, ge=1)
    """At most so many questions, for each judge; none: no limit."""


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
    cache_write_1h: float | None = Field(None, ge=0)
    """Input written to the cache for an hour; without it as `cache_write`."""


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
    checks: Literal["process", "thread"] | None = None
    """Where our own checks without a judge run. None: in a process beside `ragpulse serve` where there are two cores,
    else in a thread of the collector."""

    def own_process(self, default: bool) -> bool:
        """Return whether the checks run in a process of their own."""
        return default if self.checks is None else self.checks == "process"


class EvaluatorSpec(BaseModel):
    """One `[[evaluator]]`: a registered evaluator under a new name with fixed parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    """The new name."""
    use: str
    """The registered evaluator; all other keys are its parameters."""
    replaces: bool = False
    """Whether it takes the place of an evaluator that has its name already; else that is refused."""
    judge: JudgeModel | None = None
    """A judge of its own: a name like `[judge] model`, or a table with `model`, `api_key_env`, ... It is paid from the
    same budget. None: the judge of `[judge]`."""

    @field_validator("judge", mode="before")
    @classmethod
    def _named(cls, judge: Any) -> Any:
        return {"model": judge} if isinstance(judge, str) else judge

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
    unit: Literal["trace", "session"] = Field("trace", description="`session`: the last turn of each quiet session.")
    """`session`: the last turn of each session, once it has been quiet for `[collector] session_quiet_s`."""
    budget_usd_per_day: float | None = Field(
        None, ge=0, description="The most that this rule may spend on judges in a day."
    )
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
