"""Every `ragpulse` line of the documentation is a command that exists, with options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ragpulse_collector.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "reference" / "cli.md", *sorted((ROOT / "docs").glob("*.md"))]


def lines(text: str) -> Iterator[str]:
    """Command lines of code blocks and of inline code, without what the shell reads; unfinished ones are left out."""
    blocks = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, re.DOTALL)
    written = [*(line.strip() for block in blocks for line in block.splitlines()), *re.findall(r"`([^`\n]+)`", text)]
    for line in written:
        command = re.split(r"\s(?:#|\||&&|>)", line.removeprefix("$ "))[0]
        if command.startswith("ragpulse ") and not re.search(r"\.\.\.|\\$|ragpulse (?:run|-)|\[OPTIONS]", command):
            yield command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_lines_of_a_page_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options, choices and numbers are read; files need not exist, and arguments may be missing."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: value)
    for line in lines(page.read_text(encoding="utf-8")):
        name, *words = shlex.split(line)[1:]
        try:
            cli.commands[name].make_context(name, words)
        except click.MissingParameter:
            continue
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_every_command_has_an_example_in_its_help() -> None:
    """Of itself; the reference repeats them, where they are typed."""
    for name, command in cli.commands.items():
        assert (command.epilog or "").startswith(f"Example: ragpulse {name} ")
