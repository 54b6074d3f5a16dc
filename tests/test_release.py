"""A release carries the version of its tag: checked by `.ci/built.py`, in CI and before a tag is made."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import yaml

from ragpulse._record.tracer import SDK_VERSION
from ragpulse_collector.store.schema import SCHEMA_VERSION

ROOT = Path(__file__).parents[1]
WHEEL = ROOT / "tests" / "collector" / "fixtures" / "ragpulse-0.1.0-py3-none-any.whl"
CHECK = ROOT / ".ci" / "built.py"


def checked(folder: Path, tag: str) -> list[str]:
    """What the check says about a folder's distributions; nothing where it passes."""
    run = [sys.executable, folder / ".ci" / "built.py", tag, folder / "dist"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr.splitlines()


def release(folder: Path, *, urls: str = '[project.urls]\nSource = "https://example.org"\n') -> Path:
    """A small repository with a wheel of 0.1.0 and the source distribution made from it."""
    for name in (".ci", "dist"):
        (folder / name).mkdir()
    shutil.copy(CHECK, folder / ".ci")
    shutil.copy(WHEEL, folder / "dist")
    (folder / "pyproject.toml").write_text(f'[project]\nname = "ragpulse"\nversion = "0.1.0"\n{urls}')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0\n")
    (folder / "ragpulse-0.1.0").mkdir()
    (folder / "ragpulse-0.1.0" / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: ragpulse\nVersion: 0.1.0\n")
    shutil.make_archive(str(folder / "dist" / "ragpulse-0.1.0"), "gztar", folder, "ragpulse-0.1.0")
    return folder


def test_a_tag_fits_what_was_built(tmp_path: Path) -> None:
    """The right tag passes; another one is refused for the project, the changelog and both files."""
    folder = release(tmp_path)
    assert checked(folder, "v0.1.0") == []
    assert checked(folder, "v0.2.0") == [
        "pyproject.toml has version 0.1.0, the tag is v0.2.0",
        "CHANGELOG.md has no section 0.2.0",
        "ragpulse-0.1.0-py3-none-any.whl has version 0.1.0, the tag is v0.2.0",
        "ragpulse-0.1.0.tar.gz has version 0.1.0, the tag is v0.2.0",
    ]


def test_a_wheel_alone_or_no_address_is_refused(tmp_path: Path) -> None:
    """Nothing is released without a source distribution, or without saying where the project lives."""
    folder = release(tmp_path, urls="")
    (folder / "dist" / "ragpulse-0.1.0.tar.gz").unlink()
    address, lacking = checked(folder, "v0.1.0")
    assert "[project.urls]" in address
    assert "lacks a wheel or a source distribution" in lacking


def test_a_release_begins_with_a_clean_tree_and_a_new_tag(tmp_path: Path) -> None:
    """The script stops before it builds anything."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=tmp_path, check=True)

    def said() -> str:
        run = [tmp_path / ".ci" / "release", "v0.1.0"]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr

    release(tmp_path)
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    git("init", "--quiet")
    assert "the working tree is not clean" in said()
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    git("tag", "v0.1.0")
    assert "the tag v0.1.0 exists" in said()


def test_ci_checks_the_tag() -> None:
    """A tag runs everything and `make release`, and nothing is published before; each script and target exists."""
    files = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    jobs = {name: job for file in files for name, job in file["jobs"].items()}
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    everything = "sudo --preserve-env=PATH .ci/run"
    build = 'make release URL="$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" TAG="$GITHUB_REF_NAME"'
    assert commands["build"] == [everything, build]
    assert commands["test"] == [everything]
    assert {name: jobs[name]["needs"] for name in ("pypi", "image", "announce")} == {
        "pypi": "build", "image": "build", "announce": ["pypi", "image"],
    }  # fmt: skip
    assert {name for name, job in jobs.items() if "password" in str(job)} == {"image"}, "PyPI needs no secret"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    targets = {word.split()[1] for lines in commands.values() for word in lines if word.startswith("make ")}
    assert [name for name in targets if f"\n{name}:" not in (ROOT / "Makefile").read_text()] == []


def test_every_place_names_the_same_version() -> None:
    """What is installed, what spans carry and the images of Kubernetes; and it is not the version before."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = [path.read_text() for path in (ROOT / "deploy" / "kubernetes").glob("*/kustomization.yaml")]
    wheels = re.findall(r"ragpulse-([\d.]+)-py3", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {SDK_VERSION, *wheels, metadata.version("ragpulse"), *re.findall(r'newTag: "(.+?)"', "".join(images))} == {
        project
    }
    assert WHEEL.name.split("-")[1] < project


def test_the_table_of_schema_versions_is_right() -> None:
    """The row of 0.1 is the version of its file and of its wheel; the last row is the version of this code."""
    page = (ROOT / "docs" / "backup.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)(?:, \d+)* \| (.+?) \|", page, re.M)
    with zipfile.ZipFile(WHEEL) as wheel:
        released = re.search(r"SCHEMA_VERSION = (\d+)", wheel.read("ragpulse_collector/store/schema.py").decode())
    assert released is not None
    assert [number for number, what in rows if "0.1" in what] == [released[1]]
    assert int(rows[-1][0]) == SCHEMA_VERSION
