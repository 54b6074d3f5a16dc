"""Options that several commands share, and where answers come from."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

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


def source(command: F) -> F:
    """Add --url, --api-key and --db: the running collector, or a closed file."""
    command = option("--db", type=FILE, help="Read a closed file instead of a running collector.")(command)
    command = option("--api-key", env="RAGPULSE_API_KEY", help="Key with the scope the command needs.")(command)
    return option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")(command)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --api-key and --db, and call the command with `ask`, which answers operations from there."""

    @wraps(command)
    def run(url: str | None, db: str | None, api_key: str | None, **given: Any) -> Any:
        return command(ask=asker(url, db, api_key), **given)

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


def asker(url: str | None, db: str | None, api_key: str | None) -> Ask:
    """Return the function that answers operations, from a running collector or from a closed file."""
    if db and is_closed(url):
        return _offline(db)
    from ragpulse_collector.client import ClientError, connect

    client = connect(url, api_key=api_key)

    def ask(operation: str, params: Mapping[str, Any]) -> Any:
        try:
            return client.call(operation, params)
        except ClientError as error:
            hint = " (or read a closed file with --db)" if error.status is None else ""
            raise Failure(f"{error}{hint}") from error

    return ask


def is_closed(url: str | None) -> bool:
    """Whether --db says where to look: it wins over RAGPULSE_URL; raises Failure beside --url."""
    context = click.get_current_context(silent=True)
    if url and (context is None or context.get_parameter_source("url") is ParameterSource.COMMANDLINE):
        raise Failure("--url is a running collector and --db a closed file: give one of them")
    return True


def download(operation: str, params: Mapping[str, Any], target: Path, *, where: Mapping[str, Any]) -> None:
    """Write what an operation makes to a new file that only its owner reads, like the database."""
    if target.exists():
        raise Failure(f"{target} exists already: choose another name")
    target.parent.mkdir(parents=True, exist_ok=True)
    if where["db"] and is_closed(where["url"]):
        made = _offline(where["db"])(operation, params)
        made.path.chmod(0o600)
        shutil.move(made.path, target)
        made.discard()
        return
    from ragpulse_collector.client import ClientError, connect

    try:
        connect(where["url"], api_key=where["api_key"]).download(operation, params, target)
    except ClientError as error:
        raise Failure(str(error)) from error


def _offline(db: str) -> Ask:
    from ragpulse_collector.api.operations import ApiError
    from ragpulse_collector.app.offline import offline

    try:
        operations = click.get_current_context().with_resource(offline(db, config_path(None)))
    except (OSError, ValueError) as error:
        raise Failure(str(error)) from error

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
