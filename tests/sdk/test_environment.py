"""Each variable of OpenTelemetry is honoured, or its row in docs/configure.md says why not."""

import fnmatch
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opentelemetry.environment_variables
import opentelemetry.sdk.environment_variables
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import ragpulse
from ragpulse._instrument import LIBRARIES, run
from ragpulse._settings import SdkSettings

from .conftest import Collector
from .test_settings import _settings

PAGE = (Path(__file__).parents[2] / "docs" / "configure.md").read_text(encoding="utf-8")
TABLE = PAGE[PAGE.index("### Variables of OpenTelemetry") : PAGE.index("### Which provider makes the spans")]
ROWS = re.findall(r"^\| (`OTEL_.+?) \| (yes|no) \|", TABLE, re.M)
STATED = {name: answer == "yes" for names, answer in ROWS for name in re.findall(r"`(OTEL_[A-Z_]+\*?)`", names)}
OTLP, TRACES, LOGS = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_LOGS_"
APM = {f"{OTLP}ENDPOINT": "http://apm:4318"}
Read = Callable[[SdkSettings], Any]
HONOURED: list[tuple[dict[str, str], Read, Any]] = [
    ({"OTEL_SDK_DISABLED": "true"}, lambda read: read.enabled, False),
    ({"OTEL_TRACES_EXPORTER": "none"}, lambda read: read.enabled, False),
    ({"OTEL_TRACES_EXPORTER": " None "}, lambda read: read.enabled, False),
    ({"OTEL_TRACES_EXPORTER": "console"}, lambda read: read.exporters, {"console"}),
    ({"OTEL_TRACES_EXPORTER": "otlp,console"}, lambda read: read.exporters, {"otlp", "console"}),
    ({"OTEL_TRACES_EXPORTER": "none,console"}, lambda read: (read.enabled, read.exporters), (True, {"console"})),
    ({"OTEL_TRACES_EXPORTER": "zipkin"}, lambda read: read.exporters, {"otlp"}),
    ({"OTEL_TRACES_EXPORTER": ""}, lambda read: (read.enabled, read.exporters), (True, {"otlp"})),
    ({"OTEL_TRACES_SAMPLER": "always_off"}, lambda read: read.sampler, "always_off"),
    ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, lambda read: read.sampler, "parentbased_always_on"),
    ({"OTEL_TRACES_SAMPLER_ARG": "0.25"}, lambda read: read.sampler_arg, 0.25),
    ({"OTEL_TRACES_SAMPLER_ARG": "a lot"}, lambda read: read.sampler_arg, 1.0),
    ({"OTEL_SERVICE_NAME": "shop"}, lambda read: read.resource["service.name"], "shop"),
    ({"OTEL_RESOURCE_ATTRIBUTES": "team=a%20b,zone=1"}, lambda read: read.resource["team"], "a b"),
    (APM, lambda read: read.destination.traces_url, "http://apm:4318/v1/traces"),
    ({f"{TRACES}ENDPOINT": "http://apm/t"}, lambda read: read.destination.traces_url, "http://apm/t"),
    ({f"{LOGS}ENDPOINT": "http://apm/l"}, lambda read: read.destination.logs_url, "http://apm/l"),
    ({**APM, f"{OTLP}HEADERS": "a=1"}, lambda read: read.destination.headers, {"a": "1"}),
    ({f"{OTLP}HEADERS": "a=1"}, lambda read: read.destination.headers, {}),
    ({**APM, f"{TRACES}HEADERS": "b=2"}, lambda read: read.destination.headers, {"b": "2"}),
    ({f"{OTLP}TIMEOUT": "3"}, lambda read: read.destination.timeout, 3.0),
    ({f"{TRACES}TIMEOUT": "4"}, lambda read: read.destination.timeout, 4.0),
    ({f"{OTLP}COMPRESSION": "gzip"}, lambda read: read.destination.gzip, "sent"),
    ({f"{TRACES}COMPRESSION": "none"}, lambda read: read.destination.gzip, "never"),
    ({f"{OTLP}CERTIFICATE": "ca.pem"}, lambda read: read.destination.certificate, "ca.pem"),
    ({f"{TRACES}CERTIFICATE": "ca.pem"}, lambda read: read.destination.certificate, "ca.pem"),
    (
        {f"{OTLP}CLIENT_CERTIFICATE": "c.pem", f"{OTLP}CLIENT_KEY": "c.key"},
        lambda read: read.destination.client_certificate,
        ("c.pem", "c.key"),
    ),
    (
        {f"{TRACES}CLIENT_CERTIFICATE": "c.pem", f"{TRACES}CLIENT_KEY": "c.key"},
        lambda read: read.destination.client_certificate,
        ("c.pem", "c.key"),
    ),
    ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}, lambda read: read.policy.capture, False),
    ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"}, lambda read: read.policy.capture, False),
    ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}, lambda read: read.policy.capture, True),
]
ELSEWHERE = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "OTEL_PYTHON_CONTEXT"}
"""Honoured, but not by `read_settings`: tested below, or the OpenTelemetry API's own."""


@pytest.mark.parametrize(("env", "read", "expected"), HONOURED, ids=[str(env)[:60] for env, _, _ in HONOURED])
def test_it_is_honoured(env: dict[str, str], read: Read, expected: Any) -> None:
    """What the row says."""
    assert read(_settings(env)) == expected


@pytest.mark.parametrize("name", [name for name, honoured in STATED.items() if not honoured and "*" not in name])
def test_it_changes_nothing(name: str) -> None:
    """A variable that is not honoured leaves every setting as it is."""
    with_it, without = _settings({**APM, name: "1"}), _settings(APM)
    assert str(with_it).partition("policy=")[0] == str(without).partition("policy=")[0]
    assert (with_it.resource, with_it.sampler, with_it.exporters) == (
        without.resource,
        without.sampler,
        without.exporters,
    )


def test_the_table_has_every_variable() -> None:
    """Those of OpenTelemetry Python's API and SDK, once each; what is said to be honoured has a test."""
    modules = (opentelemetry.environment_variables, opentelemetry.sdk.environment_variables)
    names = {str(value) for module in modules for value in vars(module).values() if str(value).startswith("OTEL_")}
    assert {name for name in names if not any(fnmatch.fnmatch(name, stated) for stated in STATED)} == set()
    assert {name for name, yes in STATED.items() if yes} - {name for env, *_ in HONOURED for name in env} == ELSEWHERE
    assert sum(len(re.findall(r"`OTEL_", names)) for names, _ in ROWS) == len(STATED)


@pytest.mark.parametrize("value", ["none", "console"])
@pytest.mark.parametrize("attached", [False, True])
def test_nothing_is_sent(
    value: str,
    attached: bool,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On our own provider `console` prints the span, redacted; an application's provider prints for itself."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", value)
    ragpulse.configure(endpoint=collector.url, tracer_provider=TracerProvider() if attached else None)
    trace_id = ragpulse.rag(lambda q: ragpulse.current_span().trace_id)("token sk-proj-" + "a1B2" * 12)
    ragpulse.feedback(trace_id or "1", "thumbs", 1)
    assert ragpulse.flush(timeout=60)
    report, printed = ragpulse.doctor(), capsys.readouterr().out
    ragpulse.shutdown(timeout=1)
    assert (collector.requests, ragpulse.stats().dropped) == ([], 0)
    assert "OTEL_TRACES_EXPORTER" in report
    if value == "console" and not attached:
        assert json.loads(printed)["attributes"]["input.value"] == "token [redacted:key]"
    else:
        assert printed == ""


def test_both_exporters_get_each_span(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`otlp,console`; a second `configure` does not print twice."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
    for _ in range(2):
        ragpulse.configure(endpoint=collector.url)
    ragpulse.rag(lambda q: q)("hello")
    assert ragpulse.flush(timeout=60)
    assert json.loads(capsys.readouterr().out)["attributes"]["input.value"] == "hello"
    assert len(collector.spans) == 1


DISABLED = """
import os, ragpulse
installed = set(ragpulse.instrument())
assert installed
os.environ["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = " OpenAI,langchain"
assert set(ragpulse.instrument()) == installed - {"openai", "langchain"}
assert ragpulse.instrument("openai") == ("openai",)
"""


def test_a_disabled_instrumentation_is_left_out() -> None:
    """By its name in the list; a name that `instrument` is given wins. A process of its own: nothing undoes it."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", DISABLED], check=True, timeout=300)
    assert {"openai", "langchain"} <= set(LIBRARIES)


def test_grpc_is_named_where_it_cannot_be_had(caplog: pytest.LogCaptureFixture) -> None:
    """Only where the address is OpenTelemetry's: ours has its own port."""
    grpc = {f"{OTLP}PROTOCOL": "grpc"}
    _settings(grpc)
    _settings(grpc, endpoint="http://pulse:4318")
    assert caplog.text == ""
    _settings({**grpc, **APM})
    assert "ragpulse sends http/protobuf; name a port for OTLP/HTTP (4318)" in caplog.text


UNSAMPLED = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}


def asked(times: int = 1) -> None:
    """Requests that a load balancer marked."""
    for _ in range(times):
        with ragpulse.extract(UNSAMPLED):
            ragpulse.rag(lambda q: q)("hello")


@pytest.mark.parametrize("attached", [False, True])
def test_requests_that_are_marked_unsampled_are_counted(
    attached: bool, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; `stats` and `doctor` count all of them, on our provider and on the application's."""
    ragpulse.configure(endpoint=collector.url, tracer_provider=TracerProvider() if attached else None)
    asked(3)
    ragpulse.rag(lambda q: q)("unmarked")
    assert ragpulse.flush(timeout=60)
    assert (ragpulse.stats().unsampled, len(collector.spans)) == (3, 1)
    assert caplog.text.count("it ends in -00") == 1
    assert "not recorded: 3 requests; its traceparent says" in ragpulse.doctor()


def test_an_instrumented_server_counts_as_well(collector: Collector) -> None:
    """Its span comes first, from the same `traceparent`: one request, not two."""
    provider = TracerProvider()
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider)
    with ragpulse.extract(UNSAMPLED), provider.get_tracer("server").start_as_current_span("GET /"):
        ragpulse.rag(lambda q: ragpulse.span(lambda: q)())("hello")
    assert ragpulse.stats().unsampled == 1
    ragpulse.configure(endpoint=collector.url)
    with ragpulse.extract(UNSAMPLED), ragpulse.tracer_provider().get_tracer("server").start_as_current_span("GET /"):
        ragpulse.rag(lambda q: ragpulse.span(lambda: q)())("hello")
    assert ragpulse.stats().unsampled == 1


@pytest.mark.parametrize("attached", [False, True])
def test_the_mark_can_be_ignored(attached: bool, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRACES_SAMPLER=always_on, which a provider of the OpenTelemetry SDK reads as well."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    ragpulse.configure(endpoint=collector.url, tracer_provider=TracerProvider() if attached else None)
    asked()
    assert ragpulse.flush(timeout=60)
    assert (ragpulse.stats().unsampled, len(collector.spans)) == (0, 1)


def test_a_share_is_no_mark(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """What the application's own sampler leaves out is neither counted nor warned of."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.0)))
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider)
    ragpulse.rag(lambda q: q)("hello")
    assert not trace.get_current_span().is_recording()
    assert (ragpulse.stats().unsampled, caplog.text) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "nope"], "there is no module 'nope' to run with -m"),
        (["-m", "os.nope"], "there is no module 'os.nope'"),
        (["-m", "json"], "there is no module 'json'"),
        (["-m", ".x"], "there is no module '.x'"),
        (["nope.py"], "there is no program 'nope.py'"),
        (["sh"], "is not a Python program"),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`ragpulse run`: exit 2 with the reason, and nothing is configured."""
    assert run(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
