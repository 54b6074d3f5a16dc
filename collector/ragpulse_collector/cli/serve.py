"""`ragpulse serve`, `ragpulse demo` and `ragpulse run`: start something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.options import Failure, config_path, option

if TYPE_CHECKING:
    from ragpulse_collector.api.operations import Operation
    from ragpulse_collector.settings import Settings
    from ragpulse_collector.store import Store


@click.command()
@option("--db", help="DuckDB file, or ducklake:... (default ragpulse.duckdb).")
@option("--host", help="Address to listen on (default 127.0.0.1; others need API keys).")
@option("--port", type=int, help="Port for OTLP/HTTP, API and pages (default 4318; 0 = any).")
@option("--grpc-port", type=int, help="Port for OTLP/gRPC (default 4317 with the [grpc] extra).")
@option("--grpc/--no-grpc", default=None, help="Whether to receive OTLP/gRPC (default: where [grpc] is installed).")
@option(
    "--config",
    env="RAGPULSE_CONFIG",
    type=click.Path(dir_okay=False),
    help="Configuration (default ./ragpulse.toml if present).",
)
@option(
    "--load",
    "loads",
    env="RAGPULSE_LOAD",
    multiple=True,
    type=click.Path(),
    help="Python or YAML file with evaluators; repeatable.",
)
@option(
    "--judge",
    env="RAGPULSE_JUDGE",
    help="Judge model, any litellm name; none is ever called without this or [judge] model.",
)
@option("--roles", help="Comma-separated: ingest,evaluate,maintain (default all).")
def serve(config: str | None, loads: tuple[str, ...], judge: str | None, roles: str | None, **options: Any) -> int:
    """Receive, store, evaluate and show: OTLP, API and pages on one port.

    Every setting of ragpulse.toml is also an environment variable: RAGPULSE_PORT, RAGPULSE_DB, RAGPULSE_JUDGE_MODEL ...
    """
    from ragpulse_collector.app.serve import serve as run
    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.settings import SettingsError
    from ragpulse_collector.store import StoreError

    def load() -> Settings:
        settings = load_settings(config_path(config)).with_options("judge", {"model": judge})
        settings = settings.with_options("collector", {**options, "roles": roles.split(",") if roles else None})
        settings = _with_key(settings)
        settings.check()
        return settings

    try:
        run(load, loads=loads, more=_offered, say=click.echo)
    except (SettingsError, StoreError, OSError, ValueError) as error:
        raise Failure(str(error)) from error
    return 0


@click.command()
@option("--config", env="RAGPULSE_CONFIG", type=click.Path(dir_okay=False), help="The configuration of the collector.")
def healthy(config: str | None) -> int:
    """Ask the collector of this machine or container whether it can store; exit 1 where not. For health checks."""
    import http.client
    import ssl

    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.settings import SettingsError

    try:
        collector = load_settings(config_path(config)).collector
        connection = http.client.HTTPConnection("127.0.0.1", collector.port, timeout=4)
        if collector.tls_certificate:  # its name is not ours to check: the question stays inside the machine
            unchecked = ssl.create_default_context()
            unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection("127.0.0.1", collector.port, timeout=4, context=unchecked)
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        answer = connection.getresponse()
    except (SettingsError, OSError, http.client.HTTPException) as error:
        raise Failure(f"no answer: {error}") from error
    click.echo(answer.read().decode("utf-8", "replace").strip())
    return int(answer.status != 200)


def _with_key(settings: Settings) -> Settings:
    """Add the key that was made at the first start, or make it now and print it: a container has no other way in."""
    from ragpulse_collector.settings import ApiKey, SettingsError

    collector = settings.collector
    if not collector.generate_key or collector.api_keys or not collector.needs_key:
        return settings
    if collector.on_a_lake:
        raise SettingsError("generate_key is for one process over a file: on a lake give all of them the same api_keys")
    kept = Path(f"{collector.db}.key")
    if kept.exists():
        key = ApiKey.model_validate_json(kept.read_text(encoding="utf-8"))
    else:
        secret, key = ApiKey.generated("generated", ("admin",))
        kept.touch(mode=0o600)
        kept.write_text(key.model_dump_json(), encoding="utf-8")
        click.echo(f"API key (shown once; delete {kept} for a new one): {secret}")
    return settings.with_options("collector", {"api_keys": [key.model_dump()]})


def _offered(store: Store) -> Iterable[Operation]:
    """Demo data on demand; imported behind the open door."""
    from ragpulse_collector.demo.offer import offered

    return offered(store)


@click.command()
@option("--serve", "stay", is_flag=True, help="Stay up after the table, until interrupted.")
@option("--model", help="Answer with this litellm model instead of the extractive answerer.")
@option("--judge", help="Also judge with this litellm model (default: the offline checks only).")
@option("--port", type=int, default=0, help="Port of the demo's collector (default: any free one).")
def demo(stay: bool, model: str | None, judge: str | None, port: int) -> int:
    """A real RAG application over ragpulse's own guides, end to end, offline, in under a minute."""
    from ragpulse_collector.demo import run

    return run(stay=stay, model=model, judge=judge, port=port, say=click.echo)


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def run(program: tuple[str, ...]) -> int:
    """Run a Python program recorded, unchanged: `ragpulse run app.py`, `ragpulse run uvicorn app:app`.

    Needs only the extra [instrument]; RAGPULSE_* and OTEL_* variables configure it.
    """
    return subprocess.run([sys.executable, "-m", "ragpulse_collector", "run", *program], check=False).returncode
