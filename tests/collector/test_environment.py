"""Every setting can come from the environment; what Kubernetes puts there does no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragpulse_collector.configuration import load_settings, variables
from ragpulse_collector.settings import SettingsError

KEY = f"app:ingest+read:{'a' * 64}"


def test_settings_come_from_the_environment() -> None:
    """Keys of [collector] without their table's name, others with it; lists by commas, tables as JSON."""
    settings = load_settings(
        None,
        {
            "RAGPULSE_PORT": "5000",
            "RAGPULSE_GRPC": "false",
            "RAGPULSE_ROLES": "ingest, maintain",
            "RAGPULSE_API_KEYS": KEY,
            "RAGPULSE_JUDGE_MODEL": "openai/gpt-5-mini",
            "RAGPULSE_PRICES": '{"m": {"input": 1, "output": 2}}',
            "RAGPULSE_RULE": '[{"name": "r", "evaluators": ["groundedness"], "rate": 0.5}]',
        },
    )
    assert (settings.collector.port, settings.collector.grpc) == (5000, False)
    assert settings.collector.roles == ("ingest", "maintain")
    assert settings.collector.api_keys[0].scopes == ("ingest", "read")
    assert (settings.judge.model, settings.prices["m"].output, settings.rule[0].rate) == ("openai/gpt-5-mini", 2, 0.5)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """What it does not name stays as the file has it."""
    file = tmp_path / "ragpulse.toml"
    file.write_text("[collector]\nport = 1\nretention_days = 7\n")
    settings = load_settings(file, {"RAGPULSE_PORT": "2"}).collector
    assert (settings.port, settings.retention_days) == (2, 7)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("RAGPULSE_PORT", "http", "RAGPULSE_PORT='http': .*integer"),
        ("RAGPULSE_ROLES", "ingest,eat", "RAGPULSE_ROLES=.*'ingest', 'evaluate' or 'maintain'"),
        ("RAGPULSE_API_KEYS", "app:secret", "RAGPULSE_API_KEYS: 'app:secret' is not NAME:SCOPES:SHA256"),
        ("RAGPULSE_RULE", "r", "RAGPULSE_RULE is not JSON"),
        ("RAGPULSE_JUDGE_CONCURRENCY", "0", "RAGPULSE_JUDGE_CONCURRENCY='0': .*greater than or equal to 1"),
    ],
)
def test_a_wrong_value_names_the_variable_and_the_form(variable: str, value: str, message: str) -> None:
    """The start is refused."""
    with pytest.raises(SettingsError, match=message):
        load_settings(None, {variable: value})


def test_the_variables_of_a_kubernetes_service_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """A Service named ragpulse puts RAGPULSE_PORT=tcp://... into every pod: one line in the log, no more."""
    settings = load_settings(None, {"RAGPULSE_PORT": "tcp://10.96.0.12:4318", "RAGPULSE_SERVICE_HOST": "10.96.0.12"})
    assert settings.collector.port == 4318
    assert [record.message for record in caplog.records] == [
        "RAGPULSE_PORT=tcp://10.96.0.12:4318 is ignored: Kubernetes sets it for a Service named ragpulse"
    ]


def test_no_two_settings_share_a_variable() -> None:
    """Nor with one that the command line or the SDK reads."""
    names = [variable.name for variable in variables()]
    others = ["RAGPULSE_URL", "RAGPULSE_ENDPOINT", "RAGPULSE_API_KEY", "RAGPULSE_JUDGE", "RAGPULSE_LOAD"]
    assert len({*names, *others}) == len(names) + len(others)


def test_options_of_the_command_line_alone_are_no_variables(tmp_path: Path) -> None:
    """A server's RAGPULSE_DB does not keep `ragpulse traces` from asking the collector; RAGPULSE_LIMIT is nothing."""
    environment = {"RAGPULSE_DB": str(tmp_path / "t.duckdb"), "RAGPULSE_LIMIT": "x", "RAGPULSE_JSON": "x"}
    command = [sys.executable, "-m", "ragpulse_collector", "traces", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert "LIMIT" not in json.dumps(done.stderr)
