"""Options that several commands share, and where answers come from."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
Ask = Callable[[str, Mapping[str, Any]], Any]
DEFAULT_CONFIG = Path("ragpulse.toml")
URL = ("RAGPULSE_URL", "RAGPULSE_ENDPOINT")
FILE = click.Path(dir_okay=False)
EXISTING_FILE, EXISTING_FOLDER = click.Path(exists=True, dir_okay=False), click.Path(exists=True, file_okay=False)


class Failure(Exception):
    """A command that could not do its work: one line, the fix included."""

    exit_code = 1


def option(*names: str, env: str | Sequence[str] | None = None, **settings: Any) -> Callable[[F], F]:
    """Declare an option, whose default is shown; `env` names environment variables, of which the first one wins."""
    return click.option(*names, **{"envvar": env, "show_envvar": bool(env), "show_default": True, **settings})


@contextmanager
def failing(*expected: type[Exception]) -> Iterator[None]:
    """Turn the expected errors of a block, whose messages name the fix, into a Failure."""
    try:
        yield
    except expected as error:
        raise Failure(str(error)) from error


class Source(NamedTuple):
    """Where answers come from: a running collector, or a closed file."""

    url: str | None
    db: str | None
    api_key: str | None

    @property
    def file(self) -> str | None:
        """The closed file, which wins over RAGPULSE_URL; raises Failure beside --url."""
        context = click.get_current_context(silent=True)
        named = context is None or context.get_parameter_source("url") is ParameterSource.COMMANDLINE
        if self.db and self.url and named:
            raise Failure("--url is a running collector and --db a closed file: give one of them")
        return self.db

    def asker(self) -> Ask:
        """Return the function that answers operations."""
        if self.file:
            return _offline(self.file)
        from ragpulse_collector.client import ClientError, connect

        client = connect(self.url, api_key=self.api_key)

        def ask(operation: str, params: Mapping[str, Any]) -> Any:
            try:
                return client.call(operation, params)
            except ClientError as error:
                hint = " (or read a closed file with --db)" if error.status is None else ""
                raise Failure(f"{error}{hint}") from error

        return ask

    def download(self, operation: str, params: Mapping[str, Any], target: Path) -> None:
        """Write what an operation makes to a new file that only its owner reads, like the database."""
        if target.exists():
            raise Failure(f"{target} exists already: choose another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.file:
            made = _offline(self.file)(operation, params)
            made.path.chmod(0o600)
            shutil.move(made.path, target)
            made.discard()
            return
        from ragpulse_collector.client import ClientError, connect

        with failing(ClientError):
            connect(self.url, api_key=self.api_key).download(operation, params, target)


def source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --api-key and --db, and call the command with the `Source` that they name as `where`."""

    @wraps(command)
    def run(url: str | None, db: str | None, api_key: str | None, **given: Any) -> Any:
        return command(where=Source(url, db, api_key), **given)

    run = option("--db", type=FILE, help="Read a closed file instead of a running collector.")(run)
    run = option("--api-key", env="RAGPULSE_API_KEY", help="Key with the scope the command needs.")(run)
    return option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")(run)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --api-key and --db, and call the command with `ask`, which answers operations from there."""

    @wraps(command)
    def run(where: Source, **given: Any) -> Any:
        return command(ask=where.asker(), **given)

    return source(run)


json_option = option("--json", "as_json", is_flag=True, help="Print the JSON answer.")
evaluators_option = option(
    "-e", "--evaluator", "evaluators", multiple=True, required=True, help="Evaluator NAME or NAME@VERSION; repeatable."
)
judge_option = option("--judge", env="RAGPULSE_JUDGE", help="Judge model: any litellm name.")
load_option = option(
    "--load", "loads", multiple=True, type=click.Path(exists=True), help="Python or YAML file with evaluators."
)
since_option = option("--since", default="7d", help="How far back: 6h, 7d, 2w.")
since_yesterday = option("--since", default="1d", help="How far back: 30m, 6h, 7d.")
where_option = option("--where", "condition", help="SQL condition over the columns of `traces`.")


def _offline(db: str) -> Ask:
    from ragpulse_collector.app.offline import offline
    from ragpulse_dashboards import ApiError

    with failing(OSError, ValueError):
        operations = click.get_current_context().with_resource(offline(db, config_path(None)))

    def ask(operation: str, params: Mapping[str, Any]) -> Any:
        try:
            return asyncio.run(operations.call(operation, params))
        except ApiError as error:
            raise Failure(error.message) from error

    return ask


def config_path(given: str | None) -> Path | None:
    """Return the configuration file: the one given, else ./ragpulse.toml where there is one."""
    if given:
        return Path(given)
    with suppress(OSError):
        if DEFAULT_CONFIG.is_file():
            return DEFAULT_CONFIG
    return None


def in_ci() -> bool:
    """Return whether progress should be plain lines."""
    return os.environ.get("CI", "").lower() in ("1", "true")
