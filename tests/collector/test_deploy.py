"""The files in deploy/ work with what the collector really offers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import kubernetes_validate
import pytest
import yaml
from lake_servers import free_port
from starlette.datastructures import Headers
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.api.guard import OPEN_PATHS, Guard, Keys
from ragpulse_collector.cli import cli
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.configuration import variables
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import CollectorSettings, Settings

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

DEPLOY = Path(__file__).parents[2] / "deploy"


def expressions() -> list[str]:
    """Every query of the dashboard."""
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_dashboard_asks_for_metrics_that_exist(collector: Callable[..., Collector]) -> None:
    """Every name in a Grafana query is in the text that Prometheus scrapes once something was received and refused."""
    running = collector()
    send(running.url, rag_trace(0))
    client = connect(running.url)
    with pytest.raises(ClientError):
        client.request("POST", "/v1/traces", body=[])
    until(client, "select 1 from scores where evaluator = 'refusal' and status = 'ok'")
    offered = set(re.findall(r"^(\w+)", client.request("GET", "/metrics").decode(), re.MULTILINE))
    asked = {name for expression in expressions() for name in re.findall(r"ragpulse_\w+", expression)}
    assert asked
    assert asked <= offered


def test_panels_have_titles_and_places() -> None:
    """Grafana needs an id and a position for each; two panels never share one."""
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["targets"] for panel in panels)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """The unit has no unknown setting; its command is replaced by one that exists here."""
    unit = (DEPLOY / "ragpulse.service").read_text()
    checked = tmp_path / "ragpulse.service"
    checked.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={shutil.which('true')}", unit))
    done = subprocess.run(["systemd-analyze", "verify", checked], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "ragpulse" in line]
    assert complaints == []


def test_the_unit_starts_with_options_that_exist() -> None:
    """Whatever follows `serve` is an option of this version."""
    (line,) = [line for line in (DEPLOY / "ragpulse.service").read_text().splitlines() if line.startswith("ExecStart=")]
    known = {option for parameter in cli.commands["serve"].params for option in parameter.opts}
    given = set(re.findall(r"--[\w-]+", line))
    assert given
    assert given <= known


MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*/*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    """Every document is valid for the API version it names; kustomizations name files that exist."""
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "Kustomization":
            assert [name for name in document["resources"] if not (path.parent / name).exists()] == []
        else:
            kubernetes_validate.validate(document, "1.34", strict=True)


FILES = [*MANIFESTS, DEPLOY / "compose.yaml", DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.lake"]


def test_variables_and_probes_are_those_of_the_collector() -> None:
    """Each RAGPULSE_ variable is a setting, and each probed path is a route that needs no key."""
    text = "\n".join(path.read_text() for path in FILES)
    settings = {variable.name for variable in variables()} | {"RAGPULSE_CONFIG", "RAGPULSE_API_KEY"}
    assert set(re.findall(r"\b(RAGPULSE_[A-Z_]+[A-Z])\b(?!=tcp)", text)) - settings == set()
    assert set(re.findall(r"path: (/\w+z)", text)) <= OPEN_PATHS


def test_the_compose_file_publishes_on_loopback_only() -> None:
    """Without keys nobody else may reach the ports."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def image_environment(**more: str) -> dict[str, str]:
    """The variables that the Dockerfile sets, with a folder and port of this test's own."""
    found = re.findall(r"\b(RAGPULSE_\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text().partition("ENV PATH")[2])
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("RAGPULSE_", "OTEL_"))}
    return outside | dict(found) | {"RAGPULSE_GRPC": "false", "PYTHONUNBUFFERED": "1"} | more


def test_the_image_starts_at_once_and_prints_a_key_once(tmp_path: Path) -> None:
    """The image's variables and commands, as they are: a key is printed once and works at the next start."""
    port = str(free_port())
    environment = image_environment(RAGPULSE_DB=str(tmp_path / "ragpulse.duckdb"), RAGPULSE_PORT=port)
    secrets: list[str] = []
    healthy = [sys.executable, "-m", "ragpulse_collector", "healthy"]
    ready = partial(subprocess.run, healthy, env=environment, check=False, capture_output=True)
    for _ in range(2):
        serve = [sys.executable, "-m", "ragpulse_collector", "serve"]
        with subprocess.Popen(serve, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            eventually(lambda: ready().returncode == 0)
            if secrets:
                assert connect(f"http://127.0.0.1:{port}", api_key=secrets[0]).call("GET status", {})
                with pytest.raises(ClientError):
                    connect(f"http://127.0.0.1:{port}").call("GET status", {})
            process.terminate()
            output, _ = process.communicate(timeout=60)
        secrets += re.findall(r"API key \(shown once.*: (rp_\S+)", output)
    assert len(secrets) == 1


def test_ports_published_on_loopback_need_no_key(tmp_path: Path) -> None:
    """What compose.yaml sets; a page of another host is refused all the same."""
    settings = CollectorSettings(host="0.0.0.0", published_on_loopback=True, db=str(tmp_path / "ragpulse.duckdb"))
    Settings(collector=settings).check()
    assert not settings.needs_key
    guard = Guard(_nothing, settings=settings, keys=Keys(settings))
    assert guard.check("GET", "/traces", Headers({"host": "localhost:4318"})) is None
    with pytest.raises(Refusal):
        guard.check("GET", "/traces", Headers({"host": "rag.example.org"}))


async def _nothing(*_: object) -> None:
    """An application that is never asked."""


def test_the_collector_in_front_forwards_to_our_port() -> None:
    """The OpenTelemetry Collector's file buffers on disk, retries for ever and sends where `serve` listens."""
    config = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
    exporter = config["exporters"]["otlphttp/ragpulse"]
    assert exporter["endpoint"].endswith(":4318")
    assert exporter["sending_queue"]["batch"]["max_size"]
    assert exporter["sending_queue"]["storage"] in config["service"]["extensions"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == 0
    for pipeline in config["service"]["pipelines"].values():
        assert "processors" not in pipeline  # a batch in memory would be lost with the process
        assert set(pipeline["receivers"]) <= set(config["receivers"])
        assert set(pipeline["exporters"]) <= set(config["exporters"])
