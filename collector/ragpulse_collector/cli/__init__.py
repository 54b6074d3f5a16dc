"""The command line: one group, one module a family of verbs.

serve, demo                      start something          (serve.py)
metrics, traces, show, tail      look                     (look.py)
evaluators, evaluate, ...        evaluators and judges    (evaluate.py)
replay, compare, check, plan     quality over stored data (quality.py)
sql, export, snapshot, prune ... the data itself          (data.py)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ragpulse_collector.cli import data, evaluate, look, quality, serve
from ragpulse_collector.cli.options import Failure


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ragpulse", prog_name="ragpulse")
def cli() -> None:
    """Observability for RAG applications: traces in, quality over time out."""


for family in (serve, look, evaluate, quality, data):
    for command in family.COMMANDS:
        cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors are one line with the mend (usage 2, failure 1)."""
    try:
        outcome = cli.main(list(arguments) if arguments is not None else None, "ragpulse", standalone_mode=False)
    except click.UsageError as error:
        print(f"ragpulse: {error.format_message()}", file=sys.stderr)
        return 2
    except (click.ClickException, Failure) as error:
        print(
            f"ragpulse: {error.format_message() if isinstance(error, click.ClickException) else error}", file=sys.stderr
        )
        return getattr(error, "exit_code", 1)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: not an error
        return 0
    return outcome if isinstance(outcome, int) else 0
