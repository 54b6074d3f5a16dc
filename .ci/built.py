"""Checks what a release is made of: `python .ci/built.py v0.2.0 dist` exits 1 and names what does not fit the tag."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version(built: Path) -> str:
    """Return the version in the metadata of a wheel or a source distribution; the file's name is not asked."""
    if built.suffix == ".whl":
        with zipfile.ZipFile(built) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            text = wheel.read(name).decode()
    else:
        with tarfile.open(built) as source:
            (first, *_) = source.getnames()
            text = source.extractfile(f"{first.partition('/')[0]}/PKG-INFO").read().decode()  # type: ignore[union-attr]
    return str(Parser().parsestr(text, headersonly=True)["Version"])


def faults(tag: str, folder: Path, *, root: Path = ROOT) -> Iterator[str]:
    """Yield what does not fit the tag."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if f"v{project['version']}" != tag:
        yield f"pyproject.toml has version {project['version']}, the tag is {tag}"
    if f"\n## {tag.removeprefix('v')}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section {tag.removeprefix('v')}"
    if not project.get("urls"):
        yield "pyproject.toml has no [project.urls]: write the public addresses of source, documentation and issues"
    built = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    if {path.suffix for path in built} != {".whl", ".gz"}:
        yield f"{folder} lacks a wheel or a source distribution"
    for path in built:
        if f"v{version(path)}" != tag:
            yield f"{path.name} has version {version(path)}, the tag is {tag}"


if __name__ == "__main__":
    found = list(faults(sys.argv[1], Path(sys.argv[2])))
    sys.exit("\n".join(found) or None)
