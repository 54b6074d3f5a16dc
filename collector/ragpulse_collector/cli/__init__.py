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

import os
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
_EXAMPLES = {
    "demo": "demo --serve",
    "serve": "serve --db rag.duckdb --judge ollama/qwen3:8b",
    "run": "run app.py",
    "traces": "traces --sort worst --since 7d --columns time,question,model",
    "doctor": "doctor --url http://127.0.0.1:4318",
    "digest": "digest --tz Europe/Berlin",
    "topics": "topics --since 30d --wide",
    "gaps": "gaps --format csv",
    "failures": "failures --since 7d --group-by service",
    "show": "show 0af7651916cd43dd8448eb211c80319c --html trace.html",
    "metrics": "metrics latency_p95 quality:groundedness --step 1h --since 1d",
    "tail": "tail --count 5",
    "status": "status --json",
    "sql": 'sql "select model, count(*) from traces group by all"',
    "mcp": "mcp --url http://127.0.0.1:4318",
    "evaluators": "evaluators --columns name,needs,description",
    "evaluate": "evaluate cases.jsonl -e exact_match --min exact_match=0.8",
    "calibrate": "calibrate -e groundedness --labels labels.jsonl",
    "meta-evaluate": "meta-evaluate -e faithfulness --judge ollama/qwen3:8b",
    "align": "align -e faithfulness --labels labels.jsonl",
    "perturb": "perturb --since 7d --out perturbed.jsonl",
    "generate-questions": "generate-questions --count 50 --max-usd 1",
    "judge": "judge check --judge ollama/qwen3:8b",
    "models": "models list",
    "runs": "runs --purpose live",
    "replay": "replay -e faithfulness --since 7d --max-usd 2",
    "replays": "replays list",
    "compare": "compare prompt:v7 prompt:v6 -e groundedness",
    "check": "check -e groundedness --min 0.8 --since 1d",
    "plan": "plan -e groundedness --half-width 0.02",
    "freeze": "freeze --since 7d --out queries.jsonl",
    "regress": "regress queries.jsonl --app app:answer",
    "monitors": "monitors --only firing",
    "monitor": 'monitor slow --metric latency_p95 --condition "> 2000" --window 1h --save',
    "key": "key --scope read --name dashboards",
    "prices": "prices update",
    "import": "import phoenix http://127.0.0.1:6006 --since 30d",
    "export": "export views --format jsonl",
    "snapshot": "snapshot copy.duckdb",
    "prune": "prune --older-than 30d --dry-run",
    "healthy": "healthy --config ragpulse.toml",
    "migrate": "migrate --db ragpulse.duckdb",
    "remap": "remap --url http://127.0.0.1:4318",
    "vacuum": "vacuum --db ragpulse.duckdb --dry-run",
}
"""One call of each command, below its help."""


class _Commands(Mapping[str, click.Command]):
    """Every command; its module is imported at first use, so that `ragpulse serve` starts without the others."""

    def __init__(self) -> None:
        self._family = {name: family for family, names in _FAMILIES.items() for name in names}

    def __getitem__(self, name: str) -> click.Command:
        command = self._command(name)
        command.epilog = f"Example: ragpulse {_EXAMPLES.get(name, name)}"
        return command

    def _command(self, name: str) -> click.Command:
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
        """Write a section for each group, with one column of names and whole summaries."""
        longest = max(map(len, self.commands))
        others = set(self.commands).difference(*_GROUPS.values())
        for title, names in (_GROUPS | {"Look": (*_GROUPS["Look"], *sorted(others))}).items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{longest}}", self.commands[name].get_short_help_str(300)) for name in names]
                )


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
        given, colour = None if arguments is None else list(arguments), False if os.environ.get("NO_COLOR") else None
        outcome = cli.main(given, "ragpulse", standalone_mode=False, color=colour)
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
