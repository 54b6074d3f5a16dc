"""Arguments, then RAGPULSE_*, then OTEL_*, then the defaults; credentials and content stay where they belong."""

import logging
from typing import Any

import pytest

import ragpulse
from ragpulse._settings import SdkSettings, read_settings


def _settings(env: dict[str, str] | None = None, **given: Any) -> SdkSettings:
    nothing = dict.fromkeys(
        (
            "service_name",
            "service_version",
            "environment",
            "endpoint",
            "headers",
            "api_key",
            "capture_content",
            "spool_dir",
            "enabled",
        )
    )
    options = {**nothing, "redact": "default", "isolated": False, "set_global": False, "max_text_bytes": 1000}
    return read_settings(**{**options, **given}, env=env or {})


def test_the_destination_is_chosen_in_order() -> None:
    """Argument, RAGPULSE_ENDPOINT, OTEL_*, default."""
    env = {"RAGPULSE_ENDPOINT": "http://pulse:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://apm:2/base/"}
    urls = [
        _settings(env, endpoint="collector:3").destination.traces_url,
        _settings(env).destination.traces_url,
        _settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://apm:2/base/"}).destination.logs_url,
        _settings({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://apm:2/exact"}).destination.traces_url,
        _settings().destination.traces_url,
    ]
    assert urls == [
        "http://collector:3/v1/traces",
        "http://pulse:1/v1/traces",
        "http://apm:2/base/v1/logs",
        "http://apm:2/exact",
        "http://127.0.0.1:4318/v1/traces",
    ]


def test_credentials_go_only_where_they_were_meant_to() -> None:
    """OTEL headers with the OTEL endpoint, our key with ours."""
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "x-apm=secret%20one", "RAGPULSE_API_KEY": "k"}
    theirs = _settings({**env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://apm:2"}).destination.headers
    ours = _settings(
        {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://apm:2"}, endpoint="http://pulse:1"
    ).destination.headers
    assert (theirs, ours) == ({"x-apm": "secret one"}, {"Authorization": "Bearer k"})


@pytest.mark.parametrize(
    ("env", "given", "captures"),
    [
        ({}, None, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://apm.example"}, None, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://apm.example"}, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, None, True),
        ({"RAGPULSE_ENDPOINT": "https://pulse.example"}, None, True),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}, None, False),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}, True, True),
        ({}, False, False),
    ],
)
def test_content_goes_to_no_remote_otel_endpoint_unasked(
    env: dict[str, str], given: bool | None, captures: bool
) -> None:
    """And an explicit NO_CONTENT is a stated choice."""
    assert _settings(env, capture_content=given).policy.capture is captures


def test_the_resource_follows_the_environment_and_the_arguments_win() -> None:
    """Service, version, environment, and what OTEL_RESOURCE_ATTRIBUTES adds."""
    env = {"OTEL_SERVICE_NAME": "otel", "OTEL_RESOURCE_ATTRIBUTES": "team=search,deployment.environment.name=dev"}
    resource = _settings(env, service_version="1.2").resource
    assert (resource["service.name"], resource["service.version"], resource["team"]) == ("otel", "1.2", "search")
    assert resource["deployment.environment.name"] == "dev"
    assert resource["telemetry.sdk.language"] == "python"
    mine = _settings(env, service_name="mine", environment="prod").resource
    assert (mine["service.name"], mine["deployment.environment.name"]) == ("mine", "prod")


@pytest.mark.parametrize(
    ("env", "enabled", "expected"),
    [({}, None, True), ({"OTEL_SDK_DISABLED": "true"}, None, False), ({"OTEL_SDK_DISABLED": "true"}, True, True),
     ({"RAGPULSE_ENABLED": "0"}, None, False), ({}, False, False)],
)  # fmt: skip
def test_it_can_be_switched_off(env: dict[str, str], enabled: bool | None, expected: bool) -> None:
    """By argument or environment; the argument wins."""
    assert _settings(env, enabled=enabled).enabled is expected


def test_gzip_timeout_and_certificates_come_from_the_environment() -> None:
    """The usual OTEL_EXPORTER_OTLP_* variables."""
    env = {
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
    }
    destination = _settings(env).destination
    assert (destination.gzip, destination.timeout, destination.certificate) == ("never", 3.0, "ca.pem")


def test_compression_is_for_the_network() -> None:
    """By default to another computer always, on this one only what has to wait; the variable decides both."""
    far, near = "https://pulse.example", "http://127.0.0.1:4318"
    assert [_settings(endpoint=url).destination.gzip for url in (far, near)] == ["sent", "kept"]
    asked = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    assert _settings(asked, endpoint=near).destination.gzip == "sent"


def test_one_line_says_where_content_goes(caplog: pytest.LogCaptureFixture) -> None:
    """Destination, who chose it, content, redaction."""
    with caplog.at_level(logging.INFO, logger="ragpulse"):
        ragpulse.configure(endpoint="http://127.0.0.1:9")
    ragpulse.shutdown(timeout=0)
    assert "sending to http://127.0.0.1:9/v1/traces (by argument); content on; redaction key, card" in caplog.text


def test_a_wrong_setting_does_not_stop_the_application_outside_strict_mode(caplog: pytest.LogCaptureFixture) -> None:
    """`configure` logs; decorated functions work."""
    ragpulse.configure(redact="emial", strict=False)
    assert ragpulse.rag(lambda q: q)("x") == "x"
    assert "configure failed" in caplog.text
    assert "unknown redaction 'emial'" in caplog.text
    with pytest.raises(ValueError, match="emial"):
        ragpulse.configure(redact="emial", strict=True)
    ragpulse.shutdown(timeout=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"capture_content": "no"}, "capture_content= is True, False or None, and not 'no'"),
        ({"enabled": "false"}, "enabled= is True, False or None, and not 'false'"),
        ({"endpoint": "htps://collector.example"}, "begins with http:// or https://"),
        ({"endpoint": "ftp://me:secret@collector.example"}, "^'collector.example/v1/traces' is not an address"),
        ({"max_text_bytes": "64k"}, "max_text_bytes= is a number"),
    ],
)
def test_a_setting_that_would_mean_something_else_is_refused(given: dict[str, Any], message: str) -> None:
    """A text for False would send content, and a misspelt https would send it in the clear."""
    with pytest.raises(ValueError, match=message):
        ragpulse.configure(**given, strict=True)
