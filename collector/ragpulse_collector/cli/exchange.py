"""`ragpulse import` and `ragpulse mcp`: move in from other tools, and work with assistants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragpulse_collector.cli.options import URL, Failure, option

if TYPE_CHECKING:
    from ragpulse_collector.importing import Page

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_ADDRESSES = {"phoenix": "http://127.0.0.1:6006", "mlflow": "http://127.0.0.1:5000"}


@click.command("import")
@click.argument("source", type=click.Choice(["phoenix", "mlflow", "jsonl", "langfuse"]))
@click.argument("place", required=False)
@option("--since", default="90d", help="How far back: 6h, 90d, 12w.")
@option("--source-key", help="Key of the server that is read, sent as a bearer token.")
@option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")
@option("--api-key", env="RAGPULSE_API_KEY", help="Key of the collector with the scopes ingest and read.")
def import_(
    source: str, place: str | None, since: str, source_key: str | None, url: str | None, api_key: str | None
) -> None:
    """Copy traces, sessions, scores and feedback into the collector; again is harmless: nothing is stored twice.

    PLACE is the address of the server (default: port 6006 or 5000 of this computer), a file of JSON
    lines, or the folder of an export of Langfuse.
    """
    from ragpulse_collector.client import ClientError, connect
    from ragpulse_collector.importing import Moved, move

    client, moved = connect(url, api_key=api_key), Moved()
    try:
        for moved in move(client, _pages(source, place, _ago(since), source_key)):
            click.echo(f"{len(moved.traces):,} traces, {moved.spans:,} spans", err=True)
    except (ClientError, OSError, ValueError) as error:
        raise Failure(f"{error}\nstored so far: {moved.spans:,} spans; run the command again to continue") from error
    click.echo(
        f"imported {len(moved.traces):,} traces, {moved.spans:,} spans, {len(moved.sessions):,} sessions,"
        f" {moved.scores:,} scores; {moved.rejected:,} spans rejected"
    )
    kept_days = client.call("GET status")["retention"]["days"]
    if datetime.now(UTC) - _ago(since) > timedelta(days=kept_days):
        click.echo(f"note: the collector deletes traces older than {kept_days:g} days ([collector] retention_days)")


def _pages(source: str, place: str | None, since: datetime, key: str | None) -> Iterable[Page]:
    """Return what is read from a source; its modules load here, so that other commands start without them."""
    if source in ("jsonl", "langfuse"):
        from ragpulse_collector.importing import jsonl, langfuse

        if place is None:
            raise Failure(f"name the file or folder: ragpulse import {source} PATH")
        read_file = jsonl.pages if source == "jsonl" else langfuse.pages
        return read_file(Path(place), since)
    from ragpulse_collector.client import connect
    from ragpulse_collector.importing import mlflow, phoenix

    server = connect(place or _ADDRESSES[source], api_key=key)
    read_server = phoenix.pages if source == "phoenix" else mlflow.pages
    return read_server(server, since)


def _ago(since: str) -> datetime:
    match = re.fullmatch(r"(\d+)([mhdw])", since)
    if match is None:
        raise Failure(f"--since {since!r}: write how far back, such as 6h, 90d, 12w")
    return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command()
@option("--url", env=URL, help="The running collector (default http://127.0.0.1:4318).")
@option("--api-key", env="RAGPULSE_API_KEY", help="Key with the scope read.")
def mcp(url: str | None, api_key: str | None) -> None:
    """Serve read-only tools over standard input and output, for an assistant that speaks MCP."""
    from ragpulse_collector.client import connect

    try:
        from ragpulse_collector.mcp_server import server
    except ModuleNotFoundError as error:
        raise Failure(f"{error.name} is not installed: pip install 'ragpulse[mcp]'") from error
    server(connect(url, api_key=api_key)).run("stdio")
