"""The files in deploy/ work with what the collector really offers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import cli
from ragpulse_collector.client import ClientError, connect

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


@pytest.mark.parametrize("name", ["ragpulse.service", "Dockerfile"])
def test_the_commands_start_with_options_that_exist(name: str) -> None:
    """Whatever follows `serve` is an option of this version."""
    text = (DEPLOY / name).read_text().replace('", "', " ").replace('"', " ")
    (line,) = [line for line in text.splitlines() if line.startswith(("ExecStart=", "ENTRYPOINT"))]
    known = {option for parameter in cli.commands["serve"].params for option in parameter.opts}
    given = set(re.findall(r"--[\w-]+", line))
    assert given
    assert given <= known


def test_the_collector_in_front_forwards_to_our_port() -> None:
    """The OpenTelemetry Collector's file buffers on disk, retries for ever and sends where `serve` listens."""
    config = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
    exporter = config["exporters"]["otlphttp/ragpulse"]
    assert exporter["endpoint"].endswith(":4318")
    assert exporter["sending_queue"]["storage"] in config["service"]["extensions"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == 0
    for pipeline in config["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= set(config["receivers"])
        assert set(pipeline["exporters"]) <= set(config["exporters"])
