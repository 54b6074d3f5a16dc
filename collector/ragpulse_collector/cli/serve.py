"""`ragpulse serve` and `ragpulse demo`: start something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.options import Failure, config_path, option

if TYPE_CHECKING:
    from ragpulse_collector.api.operations import Operation
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
    from ragpulse_collector.settings import SettingsError, load_settings
    from ragpulse_collector.store import StoreError

    try:
        settings = load_settings(config_path(config)).with_options("judge", {"model": judge})
        settings = settings.with_options("collector", {**options, "roles": roles.split(",") if roles else None})
        settings.check()
        run(settings, loads=loads, more=_offered, say=click.echo)
    except (SettingsError, StoreError, OSError, ValueError) as error:
        raise Failure(str(error)) from error
    return 0


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
