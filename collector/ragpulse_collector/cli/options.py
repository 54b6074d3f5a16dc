"""Options that several commands share, and where answers come from."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
Ask = Callable[[str, Mapping[str, Any]], Any]
DEFAULT_CONFIG = Path("ragpulse.toml")
URL = ("RAGPULSE_URL", "RAGPULSE_ENDPOINT")


class Failure(Exception):
    """A command that could not do its work: one line, the fix included."""

    exit_code = 1


def option(*names: str, env: str | Sequence[str] | None = None, **settings: Any) -> Callable[[F], F]:
    """Declare an option; `env` names the environment variables that it is also read from, the first one wins."""
    return click.option(*names, envvar=env, show_envvar=env is not None, **settings)


def source(command: F) -> F:
    """Add --url, --api-key and --db: the running collector, or a closed file."""
    command = option(
        "--db", type=click.Path(dir_okay=False), help="Read a closed file instead of a running collector."
    )(command)
    command = option("--api-key", env="RAGPULSE_API_KEY", help="Key with the scope the command needs.")(command)
    return option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")(command)


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
