"""The command line: one group, one module for each family of commands.

serve, demo, run                 start something          (serve.py)
metrics, show, tail, doctor      look at figures, traces  (look.py)
topics, digest, gaps             what users ask, a week in words, what users miss (topics.py)
evaluators, evaluate, ...        evaluators and judges    (evaluate.py)
models, judge, generate-...      local models, a judge on labelled answers, a test set from contexts (models.py)
replay, compare, check, monitor  quality over stored data (quality.py)
freeze, regress                  before and after         (regress.py)
sql, export, prune, import ...   the data itself, mcp     (data.py)

Operations declare the others: traces, status, plan, monitors (asked.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import click

from ragpulse_collector.cli.options import refusals, sentence
from ragpulse_collector.interface import signatures

_FAMILIES = {
    "serve": ("serve", "healthy", "demo", "run"),
    "look": ("metrics", "show", "tail", "doctor"),
    "topics": ("topics", "digest", "gaps"),
    "evaluate": ("evaluators", "evaluate", "calibrate", "meta-evaluate", "align", "perturb"),
    "models": ("models", "judge", "generate-questions"),
    "quality": ("replay", "replays", "compare", "check", "monitor"),
    "regress": ("freeze", "regress"),
    "data": ("sql", "export", "snapshot", "prune", "vacuum", "migrate", "remap", "key", "prices", "import",
             "mcp"),
}  # fmt: skip


_GROUPS = {
    "First day": ("demo", "serve", "run", "traces", "doctor"),
    "Look": ("digest", "topics", "gaps", "show", "metrics", "tail", "status", "sql", "mcp"),
    "Judge": ("evaluators", "evaluate", "calibrate", "meta-evaluate", "align", "perturb", "generate-questions",
              "judge", "models"),
    "Replay and compare": ("runs", "replay", "replays", "compare", "check", "plan", "freeze", "regress"),
    "Run": ("monitors", "monitor", "key", "prices"),
    "Data": ("import", "export", "snapshot", "prune"),
    "Advanced": ("healthy", "migrate", "remap", "vacuum"),
}  # fmt: skip
"""The commands in `ragpulse --help`, by what a person wants to do."""


class _Commands(Mapping[str, click.Command]):
    """Every command; its module is imported at first use, so that `ragpulse serve` starts without the others."""

    def __init__(self) -> None:
        self._family = {name: family for family, names in _FAMILIES.items() for name in names}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._family:
            from ragpulse_collector.cli.asked import declared

            return declared(name)
        family = import_module(f"{__name__}.{self._family[name]}")
        commands = (value for value in vars(family).values() if isinstance(value, click.Command))
        return next(command for command in commands if command.name == name)

    def __iter__(self) -> Iterator[str]:
        declared = (one.command.name for one in signatures().values() if one.command)
        return iter((*self._family, *declared))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Grouped(click.Group):
    """A group of commands whose help has sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, with one column of names."""
        longest = max(map(len, self.commands))
        others = set(self.commands).difference(*_GROUPS.values())
        for title, names in (_GROUPS | {"Look": (*_GROUPS["Look"], *sorted(others))}).items():
            with formatter.section(title):
                limit = formatter.width - longest - 6
                formatter.write_dl([(f"{n:{longest}}", self.commands[n].get_short_help_str(limit)) for n in names])


@click.group(
    cls=_Grouped,
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="ragpulse", prog_name="ragpulse")
def cli() -> None:
    """Observability for RAG applications: traces in, quality over time out."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line with the fix (usage 2, failure 1)."""
    try:
        outcome = cli.main(list(arguments) if arguments is not None else None, "ragpulse", standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
        print(message if message.startswith("Usage:") else f"ragpulse: {message}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output is gone: no error
        return 0
    except refusals() as error:
        print(f"ragpulse: {sentence(error)}", file=sys.stderr)
        return 1
    return outcome if isinstance(outcome, int) else 0
