"""The documentation cannot lie: Python runs, commands parse, TOML loads, SQL is answered, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import forks
import pytest

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.cli import cli
from ragpulse_collector.client import connect
from ragpulse_collector.configuration import load_settings

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from ragpulse_collector.app import Collector

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(
    r"^(?P<mark><!-- (?P<skip>not run: [^>]+) -->\n)?```(?P<kind>\w+)[^\n]*\n(?P<text>.*?)^```", re.M | re.S
)


def fences(kind: str) -> list[ParameterSet]:
    """Every fence of a language, as a test parameter named by page and number."""
    parameters = []
    for page in PAGES:
        found = [match for match in _FENCE.finditer(page.read_text(encoding="utf-8")) if match["kind"] == kind]
        for number, match in enumerate(found, 1):
            name = f"{page.relative_to(ROOT)}-{kind}-{number}"
            marks = [pytest.mark.skip(reason=match["skip"])] if match["skip"] else []
            parameters.append(pytest.param(match["text"], id=name, marks=marks))
    return parameters


@pytest.mark.parametrize("text", fences("python"))
def test_python_runs(text: str, collector: Callable[..., Collector], tmp_path: Path) -> None:
    """Each Python example runs as its own program beside a running collector."""
    running = collector()
    environment = {"RAGPULSE_ENDPOINT": running.url, "RAGPULSE_URL": running.url, "PATH": "/usr/bin:/bin"}
    script = tmp_path / "example.py"
    script.write_text(text, encoding="utf-8")
    program = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = forks.run(program, str(script), cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", fences("sh"))
def test_commands_parse(text: str) -> None:
    """Each `ragpulse` line names a command and options that exist."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["ragpulse"] or words[:1] == [".venv/bin/ragpulse"]:
            command = cli.commands[words[1]]
            with click.Context(command, info_name=words[1]) as context:
                command.make_parser(context).parse_args(words[2:])


@pytest.mark.parametrize("text", fences("toml"))
def test_configuration_loads(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration example is accepted, and its evaluators are made."""
    for variable in re.findall(r'api_key_env = "(\w+)"', text):
        monkeypatch.setenv(variable, "a key")
    path = tmp_path / "ragpulse.toml"
    path.write_text(text, encoding="utf-8")
    Catalog(load_settings(path)).check()


def test_sql_is_answered(collector: Callable[..., Collector]) -> None:
    """Each SQL example is one SELECT that the collector answers."""
    client = connect(collector().url)
    texts = [str(parameter.values[0]) for parameter in fences("sql")]
    for text in texts:
        for statement in filter(str.strip, text.split(";")):
            client.sql(statement).rows()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file that is there."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
