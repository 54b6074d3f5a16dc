"""Options that several commands share, and where answers come from."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from ragpulse_collector.interface import age, since_time
from ragpulse_collector.refusals import Invalid, Refusal
from ragpulse_collector.zones import DAYS

if TYPE_CHECKING:
    from ragpulse_collector.api.operations import Operations
    from ragpulse_collector.evaluation.judge import JudgePrices
    from ragpulse_collector.settings import Settings
    from ragpulse_evaluators import Judge
    from ragpulse_evaluators.judges.wrappers import Budget

F = TypeVar("F", bound=Callable[..., Any])
Json = Mapping[str, Any]
"""A JSON object, as operations take and answer it."""
Ask = Callable[[str, Json], Any]
DEFAULT_CONFIG = Path("ragpulse.toml")
URL = ("RAGPULSE_URL", "RAGPULSE_ENDPOINT")
EXISTING_FILE, EXISTING_FOLDER = click.Path(exists=True, dir_okay=False), click.Path(exists=True, file_okay=False)
AGES = f"How far back: 30m, 6h, 7d, 2w, {', '.join(DAYS)}; or a time."
COUNT, USD = click.IntRange(min=1), click.FloatRange(min=0)


class _File(click.Path):
    """A file in a folder that exists: no work, and no money, is lost where it cannot be written at the end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse one whose folder is not there."""
        if not (folder := Path(value).parent).is_dir():
            self.fail(f"{value!r}: there is no folder {str(folder)!r}", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(dir_okay=False)


class Failure(Refusal):
    """A command could not do its work: one line, the fix included."""


def _usage(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of an option's value that raises BadParameter instead of Invalid."""

    def convert(value: str) -> Any:
        try:
            return read(value)
        except Invalid as error:
            raise click.BadParameter(str(error)) from error

    return convert


def option(*names: str, env: str | Sequence[str] | None = None, **settings: Any) -> Callable[[F], F]:
    """Declare an option and show its default; `env` names environment variables, the first one wins."""
    return click.option(*names, **{"envvar": env, "show_envvar": bool(env), "show_default": True, **settings})


def refusals() -> tuple[type[Exception], ...]:
    """Return the errors that say in one sentence what is wrong and how to fix it; imported when there is one."""
    from ragpulse_collector.client import ClientError
    from ragpulse_evaluators.errors import EvaluatorError

    return Refusal, EvaluatorError, ClientError, OSError


def sentence(error: Exception) -> str:
    """Return the message of a refusal on one line, with the file where the system names one."""
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(text.split())


def gate(command: Callable[..., int]) -> Callable[..., int]:
    """Make a command a gate of CI: exit 1 means a limit that is not kept, therefore 2 that it could not run."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> int:
        try:
            return command(*args, **options)
        except BrokenPipeError:
            raise
        except refusals() as error:
            click.echo(f"ragpulse: {sentence(error)}", err=True)
            return 2

    return run


class Source(NamedTuple):
    """Where answers come from: a running collector, or a closed file."""

    url: str | None
    db: str | None
    api_key: str | None

    @property
    def file(self) -> str | None:
        """The closed file, which wins over RAGPULSE_URL; raises Failure beside --url."""
        context = click.get_current_context(silent=True)
        on_command_line = context is None or context.get_parameter_source("url") is ParameterSource.COMMANDLINE
        if self.db and self.url and on_command_line:
            raise Failure("--url is a running collector and --db a closed file: give one of them")
        return self.db

    def asker(self) -> Ask:
        """Return the function that answers operations."""
        if self.file:
            return _offline(self.file)
        from ragpulse_collector.client import ClientError, connect

        client = connect(self.url, api_key=self.api_key)
        client.hint += " (or read a closed file with --db)"

        def ask(operation: str, params: Json) -> Any:
            try:
                return client.call(operation, params)
            except ClientError as error:
                raise Failure(f"{error}{_HINTS.get(error.status or 0, '')}", errors=error.errors) from error

        return ask

    def download(self, operation: str, params: Json, target: Path) -> None:
        """Write the file that an operation answers; like the database, only its owner can read it."""
        from ragpulse_collector.client import connect

        if target.exists():
            raise Failure(f"{target} exists already: choose another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.file:
            copy = _offline(self.file)(operation, params)
            copy.path.chmod(0o600)
            shutil.move(copy.path, target)
            copy.discard()
            return
        connect(self.url, api_key=self.api_key).download(operation, params, target)


_HINTS = {401: " (here: --api-key, or RAGPULSE_API_KEY)"}


def source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --api-key and --db, and call the command with the `Source` that they name."""

    @wraps(command)
    def run(url: str | None, db: str | None, api_key: str | None, **options: Any) -> Any:
        return command(source=Source(url, db, api_key), **options)

    run = option("--db", type=FILE, help="Read a closed file instead of a running collector.")(run)
    run = key_option("Key with the scope that the command needs.")(run)
    return url_option(run)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --api-key and --db, and call the command with `ask`, which answers operations from there."""

    @wraps(command)
    def run(source: Source, **options: Any) -> Any:
        return command(ask=source.asker(), **options)

    return source(run)


url_option = option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")
json_option = option("--json", "as_json", is_flag=True, help="Print the JSON answer.")
WIDE, COLUMNS = "ragpulse.wide", "ragpulse.columns"
"""Where the context of a command has the choices of `table_options`."""


def table_options(command: F) -> F:
    """Add --json, --wide and --columns; tables read the last two from the context of the command."""

    def noted(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        ctx.meta[f"ragpulse.{parameter.name}"] = value

    chosen = {"metavar": "NAME,...", "help": "Only these columns of the tables, or other fields of the answer."}
    wide = {"is_flag": True, "help": "Every column, also where the terminal is too narrow."}
    for name, settings in (("--columns", chosen), ("--wide", wide)):
        command = option(name, expose_value=False, callback=noted, **settings)(command)
    return json_option(command)


evaluator_option = option("-e", "--evaluator", required=True, help="Evaluator NAME or NAME@VERSION.")
evaluators_option = option(
    "-e", "--evaluator", "evaluators", multiple=True, required=True, help="Evaluator NAME or NAME@VERSION; repeatable."
)
judge_option = option(
    "--judge", env="RAGPULSE_JUDGE", help="Judge model: ollama/NAME, http://host:port/v1#NAME, or any litellm name."
)
config_option = option(
    "--config",
    env="RAGPULSE_CONFIG",
    type=FILE,
    help="Configuration file (default ./ragpulse.toml where there is one).",
)
load_option = option(
    "--load",
    "loads",
    multiple=True,
    type=click.Path(exists=True),
    help="Python or YAML file with evaluators; repeatable.",
)
prompts_option = option(
    "--prompts", type=EXISTING_FOLDER, help="Folder of prompt files that replace the built-in ones."
)
where_option = option("--where", help="SQL condition over the columns of `traces`.")
max_usd_option = option("--max-usd", type=USD, help="Stop before spending more than this.")
dry_run_option = option("--dry-run", is_flag=True, help="Only print count, tokens and cost.")
yes_option = option("--yes", is_flag=True, help="Do not ask.")


def key_option(text: str) -> Callable[[F], F]:
    """Declare --api-key."""
    return option("--api-key", env="RAGPULSE_API_KEY", help=text)


def since_option(default: str) -> Callable[[F], F]:
    """Declare --since, passed as a time."""
    return option(
        "--since",
        type=_usage(since_time),
        default=default,
        metavar="AGE",
        help="How far back: 30m, 6h, 7d, 2w; or a time.",
    )


def range_option(default: str) -> Callable[[F], F]:
    """Declare --since and --tz, passed as the parameters `from` and `tz` of an operation."""
    since = option("--since", "from", type=_usage(age), default=default, help=AGES)
    zone = option("--tz", default="UTC", help="IANA zone of local days and times, such as Europe/Berlin.")
    return lambda command: since(zone(command))


def priced_settings(judge: str | None, config: str | None = None) -> tuple[Settings, JudgePrices]:
    """Return this folder's configuration with another judge, if one is named, and the prices of models."""
    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.evaluation.judge import JudgePrices
    from ragpulse_collector.store import Prices

    settings = load_settings(config_path(config)).with_options("judge", {"model": judge})
    return settings, JudgePrices(settings, Prices(settings.prices, settings.collector.price_table))


def budget_of(max_usd: float | None) -> Budget | None:
    """Return what the judges of a command may spend together; None without a cap."""
    from ragpulse_evaluators.judges.wrappers import Budget

    return None if max_usd is None else Budget(max_usd)


def capped(judge: Judge, price: JudgePrices, budget: Budget | None) -> Judge:
    """Return the judge under a hard cap, if there is one; raises Failure where no cap could hold."""
    from ragpulse_collector.evaluation.budget import unknown_price
    from ragpulse_evaluators.judges.protocol import model_of
    from ragpulse_evaluators.judges.wrappers import BudgetedJudge

    if budget is None:
        return judge
    rates = price.rates(model_of(judge))
    if rates is None:
        raise Failure(f"{unknown_price(model_of(judge))}, so that --max-usd can hold")
    return BudgetedJudge(judge, budget, rates)


def _offline(db: str) -> Ask:
    """Return what answers from a file that no collector has open; operations that write are refused."""
    from ragpulse_collector.app.wiring import Components
    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.otlp.intake import Counters
    from ragpulse_collector.store import FileReader, Prices

    settings = load_settings(config_path(None)).with_options("collector", {"db": db})
    if not Path(db).is_file():
        raise Failure(f"there is no file {db}")
    store = FileReader(db)
    click.get_current_context().call_on_close(store.close)
    prices = Prices(settings.prices, settings.collector.price_table)
    return asker_of(Components(store, settings, prices=prices, counters=Counters()).operations)


def asker_of(operations: Operations) -> Ask:
    """Return the function that answers operations in this process."""
    from ragpulse_collector.api.copies import Download
    from ragpulse_collector.api.http import plain

    def ask(operation: str, params: Json) -> Any:
        answer = asyncio.run(operations.call(operation, params))
        return answer if isinstance(answer, Download) else plain(answer)  # as a collector answers

    return ask


def config_path(config: str | None) -> Path | None:
    """Return the configuration file: the one of the option, else ./ragpulse.toml where there is one."""
    if config:
        return Path(config)
    with suppress(OSError):
        if DEFAULT_CONFIG.is_file():
            return DEFAULT_CONFIG
    return None


def in_ci() -> bool:
    """Return whether progress should be plain lines."""
    return os.environ.get("CI", "").lower() in ("1", "true")
