"""`ragpulse import` and `ragpulse mcp`: data of other tools, and assistants."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragpulse_collector.cli.options import Failure, key_option, option, since_option, since_time, url_option

if TYPE_CHECKING:
    from ragpulse_collector.importing import Page

_ADDRESSES = {"phoenix": "http://127.0.0.1:6006", "mlflow": "http://127.0.0.1:5000"}


@click.command("import")
@click.argument("source", type=click.Choice(["phoenix", "mlflow", "jsonl", "langfuse"]))
@click.argument("location", metavar="[PLACE]", required=False)
@since_option("90d")
@option("--source-key", help="Key of the server to read from, sent as a bearer token.")
@url_option
@key_option("Key of the collector with the scopes ingest and read.")
def import_(
    source: str, location: str | None, since: str, source_key: str | None, url: str | None, api_key: str | None
) -> None:
    """Copy traces, sessions, scores and feedback into the collector. A second run stores nothing twice.

    PLACE is the address of the server (default: port 6006 or 5000 of this computer), a file of JSON
    lines, or the folder of a Langfuse export.
    """
    from ragpulse_collector.client import ClientError, connect
    from ragpulse_collector.importing import Moved, move

    client, counts, start = connect(url, api_key=api_key), Moved(), since_time(since)
    try:
        for counts in move(client, _pages(source, location, start, source_key)):
            click.echo(f"{len(counts.traces):,} traces, {counts.spans:,} spans", err=True)
    except (ClientError, OSError, ValueError) as error:
        rest = f"\nstored so far: {counts.spans:,} spans; run the command again to continue" if counts.spans else ""
        raise Failure(f"{error}{rest}") from error
    click.echo(
        f"imported {len(counts.traces):,} traces, {counts.spans:,} spans, {len(counts.sessions):,} sessions,"
        f" {counts.scores:,} scores; {counts.rejected:,} spans rejected"
    )
    days = client.call("GET status")["retention"]["days"]
    if datetime.now(UTC) - start > timedelta(days=days):
        click.echo(f"note: the collector deletes traces older than {days:g} days ([collector] retention_days)")


def _pages(source: str, location: str | None, since: datetime, key: str | None) -> Iterable[Page]:
    """Return the pages of a source; its modules load here, so that other commands start without them."""
    if source in ("jsonl", "langfuse"):
        from ragpulse_collector.importing import jsonl, langfuse

        if location is None:
            raise Failure(f"name the file or folder: ragpulse import {source} PATH")
        read_file = jsonl.pages if source == "jsonl" else langfuse.pages
        return read_file(Path(location), since)
    from ragpulse_collector.client import connect
    from ragpulse_collector.importing import mlflow, phoenix

    server = connect(location or _ADDRESSES[source], api_key=key)
    read_server = phoenix.pages if source == "phoenix" else mlflow.pages
    return read_server(server, since)


@click.command()
@url_option
@key_option("Key with the scope read.")
def mcp(url: str | None, api_key: str | None) -> None:
    """Serve read-only tools over standard input and output, for an assistant that speaks MCP."""
    from ragpulse_collector.client import connect

    try:
        from ragpulse_collector.mcp_server import server
    except ModuleNotFoundError as error:
        raise Failure(f"{error.name} is not installed: pip install 'ragpulse[mcp]'") from error
    server(connect(url, api_key=api_key)).run("stdio")
