"""Writes what a release contains, as CycloneDX 1.6, and the sums of its files: `python .ci/sbom.py dist`.

The packages are those that uv resolves for the extra `all` with constraints.txt, and the scripts that the pages serve.
Nothing is installed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "dashboards" / "ragpulse_dashboards" / "static" / "vendor" / "vendor.json"
EXTRA = "all"


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("application", name, version, "pypi", project["license"])},
        "components": [*python_packages(), *scripts()],
    }
    (folder / f"{name}-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS" and not path.name.startswith("."))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def python_packages() -> Iterator[dict[str, Any]]:
    """Yield the packages of the extra, with the versions of constraints.txt."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "compile", "--quiet", "--extra", EXTRA, "--constraint", "constraints.txt", "--python-version",
               "3.11", "--no-header", "--no-annotate", "pyproject.toml"]  # fmt: skip
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        name, _, version = line.partition(";")[0].strip().partition("==")
        if version:
            yield component("library", name.partition("[")[0], version, "pypi")


def scripts() -> Iterator[dict[str, Any]]:
    """Yield the files of others that the pages serve."""
    for package in json.loads(VENDOR.read_text(encoding="utf-8"))["packages"]:
        yield component("library", package["name"], package["version"], "npm", package["licence"])


def component(kind: str, name: str, version: str, registry: str, licence: str | None = None) -> dict[str, Any]:
    """Return a component of the bill."""
    entry: dict[str, Any] = {"type": kind, "name": name, "version": version, "purl": f"pkg:{registry}/{name}@{version}"}
    return entry | ({"licenses": [{"expression": licence}]} if licence else {})


if __name__ == "__main__":
    main()
