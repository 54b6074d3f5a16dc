"""The command line: one group, one module for each family of commands; operations declare the others (asked.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import click

from ragpulse_collector.cli.options import refusals, sentence
from ragpulse_collector.interface import signatures

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "First day": {
        "demo --serve": "serve",
        "serve --db rag.duckdb --judge ollama/qwen3:8b": "serve",
        "run app.py": "serve",
        "traces --sort worst --since 7d --columns time,question,model": "",
        "doctor --url http://127.0.0.1:4318": "look",
    },
    "Look": {
        "digest --tz Europe/Berlin": "topics",
        "topics --since 30d --wide": "topics",
        "gaps --format csv": "topics",
        "show 0af7651916cd43dd8448eb211c80319c --html trace.html": "look",
        "metrics latency_p95 quality:groundedness --step 1h --since 1d": "look",
        "tail --count 5": "look",
        "status --json": "",
        'sql "select model, count(*) from traces group by all"': "data",
        "mcp --url http://127.0.0.1:4318": "data",
        "failures --since 7d --group-by service": "",
    },
    "Judge": {
        "evaluators --columns name,needs,description": "evaluate",
        "evaluate cases.jsonl -e exact_match --min exact_match=0.8": "evaluate",
        "calibrate -e groundedness --labels labels.jsonl": "evaluate",
        "meta-evaluate -e faithfulness --judge ollama/qwen3:8b": "evaluate",
        "align -e faithfulness --labels labels.jsonl": "evaluate",
        "perturb --since 7d --out perturbed.jsonl": "evaluate",
        "generate-questions --count 50 --max-usd 1": "models",
        "judge check --judge ollama/qwen3:8b": "models",
        "models list": "models",
    },
    "Replay and compare": {
        "runs --purpose live": "",
        "replay -e faithfulness --since 7d --max-usd 2": "quality",
        "replays list": "quality",
        "compare prompt:v7 prompt:v6 -e groundedness": "quality",
        "check -e groundedness --min 0.8 --since 1d": "quality",
        "plan -e groundedness --half-width 0.02": "",
        "freeze --since 7d --out queries.jsonl": "regress",
        "regress queries.jsonl --app app:answer": "regress",
    },
    "Run": {
        "monitors --only firing": "",
        'monitor slow --metric latency_p95 --condition "> 2000" --window 1h --save': "quality",
        "key --scope read --name dashboards": "data",
        "prices update": "data",
    },
    "Data": {
        "import phoenix http://127.0.0.1:6006 --since 30d": "data",
        "export views --format jsonl": "data",
        "snapshot copy.duckdb": "data",
        "prune --older-than 30d --dry-run": "data",
    },
    "Advanced": {
        "healthy --config ragpulse.toml": "serve",
        "migrate --db ragpulse.duckdb": "data",
        "remap --url http://127.0.0.1:4318": "data",
        "vacuum --db ragpulse.duckdb --dry-run": "data",
    },
}
"""The commands in `ragpulse --help`, by what a person wants to do: an example of each, which begins with its name, and
its module; none where an operation declares it."""
_EXAMPLES = {example.split()[0]: (example, module) for group in _COMMANDS.values() for example, module in group.items()}


class _Commands(Mapping[str, click.Command]):
    """Every command; its module is imported at first use, so that `ragpulse serve` starts without the others."""

    def __getitem__(self, name: str) -> click.Command:
        example, module = _EXAMPLES.get(name, (name, ""))
        if module:
            family = vars(import_module(f"{__name__}.{module}")).values()
            command = next(each for each in family if isinstance(each, click.Command) and each.name == name)
        else:
            from ragpulse_collector.cli.asked import declared

            command = declared(name)
        command.epilog = f"Example: ragpulse {example}"
        return command

    def __iter__(self) -> Iterator[str]:
        declared = (one.command.name for one in signatures().values() if one.command)
        return iter(dict.fromkeys((*_EXAMPLES, *declared)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Grouped(click.Group):
    """A group of commands whose help has sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, with one column of names and whole summaries."""
        longest = max(map(len, self.commands))
        others = sorted(set(self.commands).difference(_EXAMPLES))
        for title, examples in {**_COMMANDS, **({"Others": others} if others else {})}.items():
            names = [example.split()[0] for example in examples]
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
