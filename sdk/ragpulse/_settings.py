"""Reads `configure`'s arguments and the environment. No other module reads the environment, except `_guard`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from . import _names as names
from ._export.batch import Destination, Gzip, host_of, is_loopback
from ._guard import GUARD
from ._record.content import ContentPolicy
from ._record.redaction import redaction
from ._record.tracer import SDK_VERSION

Environment = Mapping[str, str]
DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _gzip(compression: str | None, url: str) -> Gzip:
    """On the way to this computer compression costs both ends more than it saves."""
    if compression:
        return "never" if compression.strip().lower() == "none" else "sent"
    return "kept" if is_loopback(url) else "sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkSettings:
    """Everything that `configure` decided."""

    enabled: bool
    destination: Destination
    policy: ContentPolicy
    content_reason: str
    resource: Mapping[str, Any]
    service_given: bool
    """Whether the service was named for ragpulse, so that it wins over a foreign provider's resource."""
    sampler: str = "parentbased_always_on"
    sampler_arg: float = 1.0
    exporters: frozenset[str] = frozenset({"otlp"})
    """Where spans go: `otlp`, `console` or both."""
    spool_dir: str | None = None
    isolated: bool = False
    set_global: bool = False
    content_on_foreign_spans: bool = False
    """Whether the spans of an application's own provider carry content, too: `capture_content=True` was given."""
    propagate_to: frozenset[str] = frozenset()
    """The hosts whose requests carry session, user, prompt and variant."""
    max_queue_bytes: int = 64 * 1024 * 1024


def is_disabled(enabled: bool | None, env: Environment = os.environ) -> bool:
    """`enabled=` decides; without it OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER=none and RAGPULSE_ENABLED do."""
    if enabled is not None:
        return not enabled
    if _words(env, "OTEL_TRACES_EXPORTER") == {"none"}:
        return True
    return env.get("OTEL_SDK_DISABLED", "").lower() in _TRUE or env.get("RAGPULSE_ENABLED", "").lower() in _FALSE


def disabled_instrumentations(env: Environment = os.environ) -> set[str]:
    """The libraries that `instrument()` leaves out unless it is given their names."""
    return _words(env, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS")


def names_destination(env: Environment = os.environ) -> bool:
    """Whether the environment is meant for ragpulse, so that `configure` needs no call."""
    return any(env.get(f"RAGPULSE_{name}") for name in ("URL", "ENDPOINT", "API_KEY"))


def read_settings(
    *,
    service_name: str | None,
    service_version: str | None,
    environment: str | None,
    endpoint: str | None,
    headers: Mapping[str, str] | None,
    api_key: str | None,
    capture_content: bool | None,
    redact: Any,
    isolated: bool,
    set_global: bool,
    spool_dir: str | None,
    enabled: bool | None,
    max_text_bytes: int,
    propagate_to: Sequence[str] = (),
    env: Environment = os.environ,
) -> SdkSettings:
    """Arguments first, then RAGPULSE_*, then OTEL_*, then the defaults."""
    for name, value in {"capture_content": capture_content, "enabled": enabled}.items():
        if value not in (True, False, None):  # "no" would mean yes
            raise ValueError(f"{name}= is True, False or None, and not {value!r}")
    if not isinstance(max_text_bytes, int):
        raise ValueError(f"max_text_bytes= is a number, and not {max_text_bytes!r}")
    destination = _destination(endpoint, headers, api_key, env)
    capture, reason = _captures(capture_content, destination, env)
    return SdkSettings(
        enabled=not is_disabled(enabled, env),
        destination=destination,
        policy=ContentPolicy(capture=capture, redact=redaction(redact), max_text_bytes=max_text_bytes),
        content_reason=reason,
        resource=_resource(service_name, service_version, environment, env),
        service_given=service_name is not None,
        sampler=_sampler(env),
        sampler_arg=_number(env.get("OTEL_TRACES_SAMPLER_ARG"), 1.0),
        exporters=_exporters(env),
        spool_dir=spool_dir or env.get("RAGPULSE_SPOOL_DIR") or None,
        isolated=isolated,
        set_global=set_global,
        content_on_foreign_spans=capture_content is True,
        propagate_to=_hosts(propagate_to),
    )


def _destination(
    endpoint: str | None, headers: Mapping[str, str] | None, api_key: str | None, env: Environment
) -> Destination:
    """Credentials meant for one destination are never sent to another."""
    otel = "OTEL_EXPORTER_OTLP_"
    own_endpoint = endpoint or env.get("RAGPULSE_URL") or env.get("RAGPULSE_ENDPOINT")
    has_otel_endpoint = any(env.get(f"{otel}{name}") for name in ("ENDPOINT", "TRACES_ENDPOINT", "LOGS_ENDPOINT"))
    all_headers = dict(headers or {})
    if own_endpoint or not has_otel_endpoint:
        key = api_key or env.get("RAGPULSE_API_KEY")
        base = _base(own_endpoint or DEFAULT_ENDPOINT)
        urls = (f"{base}/v1/traces", f"{base}/v1/logs")
        chosen_by = "argument" if endpoint else "RAGPULSE_URL" if own_endpoint else "default"
    else:
        key = api_key
        base = _base(env.get(f"{otel}ENDPOINT") or DEFAULT_ENDPOINT)
        urls = (
            env.get(f"{otel}TRACES_ENDPOINT") or f"{base}/v1/traces",
            env.get(f"{otel}LOGS_ENDPOINT") or f"{base}/v1/logs",
        )
        all_headers = {**_pairs(env.get(f"{otel}HEADERS")), **_pairs(env.get(f"{otel}TRACES_HEADERS")), **all_headers}
        chosen_by = "OTEL_*"
        _check_protocol(env)
    for url in urls:
        if not url.lower().startswith(("http://", "https://")):
            shown = url.rpartition("@")[2]  # a password before it is not repeated
            raise ValueError(f"{shown!r} is not an address that begins with http:// or https://")
    if key:
        all_headers["Authorization"] = f"Bearer {key}"
    return Destination(
        traces_url=urls[0],
        logs_url=urls[1],
        headers=all_headers,
        chosen_by=chosen_by,
        gzip=_gzip(_otlp(env, "COMPRESSION"), urls[0]),
        timeout=_number(_otlp(env, "TIMEOUT"), 10.0),
        certificate=_otlp(env, "CERTIFICATE"),
        client_certificate=_client_certificate(env),
    )


def _words(env: Environment, name: str) -> set[str]:
    return {word.strip().lower() for word in env.get(name, "").split(",")} - {""}


def _exporters(env: Environment) -> frozenset[str]:
    """`none` alone is in `is_disabled`; an exporter that we do not have is replaced by ours."""
    named = _words(env, "OTEL_TRACES_EXPORTER") - {"none"}
    if others := named - {"console", "otlp", "otlp_proto_http"}:
        _warn(f"OTEL_TRACES_EXPORTER={','.join(sorted(others))}: spans are sent over OTLP/HTTP")
    return frozenset({"console"} & named | ({"otlp"} if named != {"console"} else set()))


def _sampler(env: Environment) -> str:
    name = env.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    if name.removeprefix("parentbased_") in ("always_on", "always_off", "traceidratio"):
        return name
    _warn(f"OTEL_TRACES_SAMPLER={name} is not known; parentbased_always_on is used")
    return "parentbased_always_on"


def _check_protocol(env: Environment) -> None:
    if (_otlp(env, "PROTOCOL") or "").strip().lower() == "grpc":
        fix = "name a port for OTLP/HTTP (4318) in RAGPULSE_URL or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        _warn(f"OTEL_EXPORTER_OTLP_PROTOCOL=grpc: ragpulse sends http/protobuf; {fix}")


def _warn(message: str) -> None:
    GUARD.limiter.warn("settings", message)


def _hosts(hosts: Sequence[str]) -> frozenset[str]:
    if isinstance(hosts, str):
        raise ValueError(f"propagate_to= is a list of hosts: propagate_to=[{hosts!r}]")
    return frozenset(map(host_of, hosts))


def _otlp(env: Environment, name: str) -> str | None:
    """A setting for traces in particular, else for every signal."""
    return env.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or env.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def _client_certificate(env: Environment) -> tuple[str, str | None] | None:
    certificate = _otlp(env, "CLIENT_CERTIFICATE")
    return (certificate, _otlp(env, "CLIENT_KEY")) if certificate else None


def _base(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    return url.rstrip("/").removesuffix("/v1/traces")


def _captures(capture_content: bool | None, destination: Destination, env: Environment) -> tuple[bool, str]:
    if capture_content is not None:
        return capture_content, "capture_content="
    if env.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower() in {"no_content", *_FALSE}:
        return False, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    if destination.chosen_by == "OTEL_*" and not is_loopback(destination.traces_url):
        return False, "the OTEL_* endpoint is not on this computer; capture_content=True sends it"
    return True, "default"


def _resource(
    service_name: str | None, service_version: str | None, environment: str | None, env: Environment
) -> dict[str, Any]:
    attributes = {
        names.SERVICE_NAME: service_name or env.get("OTEL_SERVICE_NAME"),
        names.SERVICE_VERSION: service_version,
        names.DEPLOYMENT_ENVIRONMENT: environment,
    }
    return {
        names.SERVICE_NAME: "unknown_service:python",
        **_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES")),
        names.SDK_NAME: "ragpulse",
        names.SDK_LANGUAGE: "python",
        names.SDK_VERSION: SDK_VERSION,
        **{key: value for key, value in attributes.items() if value},
    }


def _pairs(text: str | None) -> dict[str, str]:
    pairs = {}
    for part in (text or "").split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip():
            pairs[key.strip()] = unquote(value.strip())
    return pairs


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        _warn(f"{text!r} in the environment is not a number; {default} is used")
        return default
