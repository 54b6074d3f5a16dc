"""What Docker Compose and kubectl make of deploy/, without a daemon and without a cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deploy_tools
import kubernetes_validate
import pytest
import yaml

from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import SettingsError

DEPLOY = Path(__file__).parents[1] / "deploy"


def printed(tool: Callable[[], Path], *arguments: str) -> str:
    """What a program prints; skips where its package cannot be installed."""
    try:
        program = tool()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the package of {tool.__name__} cannot be installed: {error}")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(name: str) -> dict[str, list[dict[str, Any]]]:
    """What `kubectl apply -k` would send to a cluster, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for document in yaml.safe_load_all(printed(deploy_tools.kubectl, "kustomize", str(DEPLOY / "kubernetes" / name))):
        found.setdefault(document["kind"], []).append(document)
    return found


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("file", {"StatefulSet": 1, "PersistentVolumeClaim": 1, "CronJob": 1}),
        ("lake", {"Deployment": 2}),
    ],
)
def test_kustomize_renders(name: str, kinds: dict[str, int]) -> None:
    """Each document fits its schema and its namespace; Service and policy find the pods, each pod its ragpulse.toml."""
    found = rendered(name)
    shared = dict.fromkeys(("Namespace", "Secret", "Service", "Ingress", "ConfigMap", "NetworkPolicy"), 1)
    assert {kind: len(documents) for kind, documents in found.items()} == shared | kinds
    for documents in found.values():
        for document in documents:
            kubernetes_validate.validate(document, "1.34", strict=True)
            assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "ragpulse"
    (service,), (ingress,), (secret,) = found["Service"], found["Ingress"], found["Secret"]
    pods = [each["spec"]["template"] for kind in ("StatefulSet", "Deployment") for each in found.get(kind, ())]
    (policy,), (config,) = found["NetworkPolicy"], found["ConfigMap"]
    assert "[[target]]" in config["data"]["ragpulse.toml"]
    for pod in pods:
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        (mounted,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "config"]
        assert {"name": "RAGPULSE_CONFIG", "value": f"{mounted}/ragpulse.toml"} in container["env"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["image"].startswith("registry.example.org/ragpulse")
        assert {"secretRef": {"name": secret["metadata"]["name"]}} in container["envFrom"]
        offered = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= offered
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]


@pytest.mark.parametrize("name", ["file", "lake"])
def test_the_key_must_be_replaced(name: str) -> None:
    """With the Secret as it is the collector refuses to start and says what stands in the way."""
    secret = yaml.safe_load((DEPLOY / "kubernetes" / name / "secret.yaml").read_text())["stringData"]
    with pytest.raises(SettingsError, match="'ops:admin:put-the-hash-here' is not NAME:SCOPES:SHA256"):
        load_settings(None, {"RAGPULSE_API_KEYS": secret["RAGPULSE_API_KEYS"]})


@pytest.mark.parametrize(
    ("before", "after", "services"),
    [
        ("", "", {"collector"}),
        (" --profile lake", " receive evaluate", {"receive", "evaluate", "postgres", "s3", "bucket"}),
    ],
)
def test_docker_compose_resolves(before: str, after: str, services: set[str]) -> None:
    """The commands at the top of the file start what they say, from Dockerfiles that exist."""
    file = DEPLOY / "compose.yaml"
    assert f"-f deploy/compose.yaml{before} up{after} " in file.read_text()
    words = [*before.split(), "config", "--format", "json", *after.split()]
    found = json.loads(printed(deploy_tools.compose, "-f", str(file), *words))["services"]
    assert set(found) == services
    for service in found.values():
        if build := service.get("build"):
            assert (Path(build["context"]) / build["dockerfile"]).exists()
