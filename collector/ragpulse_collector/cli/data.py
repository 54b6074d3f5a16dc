"""`ragpulse sql`, `export`, `snapshot`, `prune`, `vacuum`, `migrate`, `remap`, `key`, `prices`: the data.

`ragpulse import` and `ragpulse mcp`: data of other tools, and assistants.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from ragpulse_collector.cli.assistant import ASSISTANTS, setup
from ragpulse_collector.cli.options import (
    FILE,
    Ask,
    Failure,
    Source,
    asking,
    config_option,
    config_path,
    json_option,
    key_option,
    option,
    since_option,
    source,
    url_option,
    yes_option,
)
from ragpulse_collector.cli.tables import print_json, table
from ragpulse_collector.settings import ApiKey, Binding, Scope, message

if TYPE_CHECKING:
    from ragpulse_collector.importing import Page

_ADDRESSES = {"phoenix": "http://127.0.0.1:6006", "mlflow": "http://127.0.0.1:5000"}


@click.command()
@click.argument("query")
@json_option
@asking
def sql(ask: Ask, query: str, as_json: bool) -> None:
    """Run one read-only SELECT over the views, which docs/sql.md lists."""
    answer = ask("POST sql", {"query": query, "params": []})
    if as_json:
        print_json([dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]])
        return
    table("", answer["columns"], answer["rows"], stored=True)


@click.command()
@click.argument("path", type=click.Path())
@option("--format", "kind", type=click.Choice(["parquet", "jsonl"]), default="parquet")
@source
def export(source: Source, path: str, kind: str) -> None:
    """Write the views to a folder, one file each, as Parquet or JSON lines."""
    folder = Path(path)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "views.tar"
        source.download("GET export", {"format": kind}, archive)
        with tarfile.open(archive) as tar:
            if existing := [name for name in tar.getnames() if (folder / name).exists()]:
                raise Failure(f"{folder} has {', '.join(existing)} already: name another folder")
            for member in tar.getmembers():
                member.mode = 0o600
                click.echo(f"{folder / member.name}  {member.size:,} bytes")
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it since 3.11.4
            tar.extractall(folder)


@click.command()
@click.argument("path", type=click.Path())
@source
def snapshot(source: Source, path: str) -> None:
    """Copy the database while the collector writes; the copy is consistent."""
    if Path(path).exists():
        raise Failure(f"{path} exists already: name another file")
    source.download("GET snapshot", {}, Path(path))
    click.echo(f"wrote {path} ({Path(path).stat().st_size:,} bytes)")


@click.command()
@option("--older-than", help="Age: 30d, 12h.")
@option("--service", help="Every trace with a span of this service (`demo`: the generated traffic).")
@option("--user", help="A person: every trace of this user id and of its sessions, with all their data.")
@option("--session", help="Every trace of this session id, with all their data.")
@option("--trace", help="One trace, with all its data.")
@option("--dry-run", is_flag=True, help="Only count.")
@yes_option
@asking
def prune(ask: Ask, dry_run: bool, yes: bool, **choices: str | None) -> None:
    """Delete old traces, or everything of a service or a person. The audit log records it."""
    params = {name: value for name, value in choices.items() if value is not None}
    if len(params) != 1:
        raise click.UsageError("name one of --older-than, --service, --user, --session and --trace")
    [(name, value)] = params.items()
    subject = f"everything older than {value}" if name == "older_than" else f"everything of the {name} {value}"
    if dry_run or not yes:
        counts = ask("POST prune", params | {"dry_run": True})["deleted"]
        if dry_run or not counts:
            click.echo(f"{subject}: {_rows(counts)}")
            return
        click.confirm(f"delete {subject} ({_rows(counts)})?", abort=True)
    answer = ask("POST prune", params)
    click.echo(_rows(answer["deleted"]))
    for copy in answer.get("out_of_reach", ()) if answer["deleted"] else ():
        click.echo(f"not deleted: {copy}")


def _rows(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{name}: {count}" for name, count in counts.items()) or "nothing matched"


@click.command()
@option("--db", default="ragpulse.duckdb", type=FILE, help="A closed file.")
@option("--dry-run", is_flag=True, help="Only report how much space it would free.")
def vacuum(db: str, dry_run: bool) -> None:
    """Rewrite a closed file without the space that deletions freed. A running collector reuses that space."""
    from ragpulse_collector.store import FileReader
    from ragpulse_collector.store.retention import vacuum as rewrite

    if not Path(db).is_file():
        raise Failure(f"there is no file {db}")
    if dry_run:
        with closing(FileReader(db)) as reader:
            size, used = reader.size_bytes(), reader.used_bytes()
            ddl = reader.read("SELECT sql FROM duckdb_tables() WHERE table_name = 'spans'").value
        more = "" if "ZSTD" in ddl else ", and compress the texts, which an older version stored as they are"
        click.echo(f"{db}: {size:,} bytes; a vacuum would free about {max(0, size - used):,}{more}")
        return
    before, after = rewrite(Path(db))
    click.echo(f"{db}: {before:,} bytes before, {after:,} now")


@click.command()
@option("--db", default="ragpulse.duckdb", type=FILE, help="A closed file.")
@option("--in-place", is_flag=True, help="Do not copy the older file first.")
def migrate(db: str, in_place: bool) -> None:
    """Bring a closed file of an older version to this one. `ragpulse serve` does the same at the start."""
    from ragpulse_collector.store.migrations import copy_path, migrate_file
    from ragpulse_collector.store.schema import SCHEMA_VERSION

    path = Path(db)
    if not path.is_file():
        raise Failure(f"there is no file {db}")
    before = migrate_file(path, in_place=in_place)
    if before == SCHEMA_VERSION:
        click.echo(f"{db} has schema version {SCHEMA_VERSION} already")
        return
    copy = "no copy was made" if in_place else f"the copy before is {copy_path(path)}"
    click.echo(f"{db}: schema version {before} before, {SCHEMA_VERSION} now; {copy}")


@click.command()
@asking
def remap(ask: Ask) -> None:
    """Derive the canonical columns again from the stored raw attributes, after an upgrade."""
    answer = ask("POST remap", {})
    click.echo(f"{answer['spans']} spans read, {answer['changed']} changed")


@click.command()
@option("--scope", "scopes", multiple=True, type=click.Choice(["ingest", "read", "admin"]), default=("ingest",))
@option("--name", default="key", help="Its name, for the audit log.")
@option("--service", "services", multiple=True, help="Bind the key to this service; repeatable.")
@option("--environment", "environments", multiple=True, help="Bind the key to this environment; repeatable.")
def key(scopes: tuple[Scope, ...], name: str, services: tuple[str, ...], environments: tuple[str, ...]) -> None:
    """Make an API key. It is printed once; only its hash goes into ragpulse.toml."""
    for text in (name, *services, *environments):
        if not text.isprintable() or '"' in text or "\\" in text:
            raise Failure(f"{text!r} must be printable text without quotes and backslashes")
    try:
        secret, api_key = ApiKey.generated(name, scopes, Binding(services, environments))
    except ValidationError as error:
        raise Failure(message(error.errors()[0])) from error
    lists = {"scopes": scopes, "services": services, "environments": environments}
    fields = ", ".join(f"{field} = {json.dumps(list(values))}" for field, values in lists.items() if values)
    click.echo(f"key (shown once): {secret}\n\nin ragpulse.toml:\n[collector]\napi_keys = [")
    click.echo(f'  {{ name = "{name}", {fields}, sha256 = "{api_key.sha256}" }},\n]')


PRICES_URL = "https://raw.githubusercontent.com/pydantic/genai-prices/refs/heads/main/prices/new_data/v2/data.json"


@click.group()
def prices() -> None:
    """Update the table of model prices. Without an update the installed genai-prices holds."""


@prices.command()
@option("--from", "address", default=PRICES_URL, help="Where the table is.")
@config_option
def update(address: str, config: str | None) -> None:
    """Fetch the newest price table and write it to `[collector] price_table`. One GET; nothing of yours is sent."""
    import httpx

    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.store import StoreError
    from ragpulse_collector.store.ingest.prices import replace_table

    path = Path(load_settings(config_path(config)).collector.price_table)
    click.echo(f"asking {address}: one GET, nothing of yours is sent")
    try:
        answer = httpx.get(address, timeout=30, follow_redirects=True).raise_for_status()
        providers, models = replace_table(path, address, answer.content, datetime.now(UTC))
    except (httpx.HTTPError, httpx.InvalidURL, StoreError, OSError) as error:
        raise Failure(f"{error}; the prices stay as they are") from error
    click.echo(f"wrote {path}: {models:,} models of {providers} providers")
    click.echo("the collector reads it when it starts or gets SIGHUP; `ragpulse remap` prices stored calls again")


@click.command("import")
@click.argument("source", type=click.Choice(["phoenix", "mlflow", "jsonl", "langfuse"]))
@click.argument("location", metavar="[PLACE]", required=False)
@since_option("90d")
@option("--source-key", help="Key of the server to read from, sent as a bearer token.")
@url_option
@key_option("Key of the collector with the scopes ingest and read.")
def import_(
    source: str, location: str | None, since: datetime, source_key: str | None, url: str | None, api_key: str | None
) -> None:
    """Copy traces, sessions, scores and feedback into the collector. A second run stores nothing twice.

    PLACE is the address of the server (default: port 6006 or 5000 of this computer), a file of JSON
    lines, or the folder of a Langfuse export.
    """
    from ragpulse_collector.client import ClientError, connect
    from ragpulse_collector.importing import ImportCounts, move

    client, counts = connect(url, api_key=api_key), ImportCounts()
    try:
        for counts in move(client, _pages(source, location, since, source_key)):
            click.echo(f"{len(counts.traces):,} traces, {counts.spans:,} spans", err=True)
    except (ClientError, OSError, ValueError) as error:
        rest = f"; stored so far: {counts.spans:,} spans; run the command again to continue" if counts.spans else ""
        raise Failure(f"{error}{rest}") from error
    click.echo(
        f"imported {len(counts.traces):,} traces, {counts.spans:,} spans, {len(counts.sessions):,} sessions,"
        f" {counts.scores:,} scores; {counts.rejected:,} spans rejected"
        + (f", {counts.known:,} were there already" if counts.known else "")
    )
    days = client.call("GET status")["retention"]["days"]
    if datetime.now(UTC) - since > timedelta(days=days):
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
    server.hint = f"start {source}, or name its address: ragpulse import {source} http://HOST:PORT"
    read_server = phoenix.pages if source == "phoenix" else mlflow.pages
    return read_server(server, since)


@click.command()
@click.argument("action", type=click.Choice(("serve", "setup")), default="serve")
@click.argument("assistant", type=click.Choice(ASSISTANTS), required=False)
@url_option
@key_option("Key with the scope read.")
def mcp(action: str, assistant: str | None, url: str | None, api_key: str | None) -> None:
    """Serve read-only tools over standard input and output, for an assistant that speaks MCP.

    `setup ASSISTANT` adds this command to the assistant's configuration: of this folder, for codex of this user.
    """
    from ragpulse_collector.client import connect

    try:
        from ragpulse_collector.mcp_server import serve
    except ModuleNotFoundError as error:
        raise Failure(f"{error.name} is not installed: pip install 'ragpulse[mcp]'") from error
    client = connect(url, api_key=api_key)
    if action == "serve":
        serve(client)
    elif assistant is None:
        raise click.UsageError(f"name the assistant: {', '.join(ASSISTANTS)}")
    else:
        click.echo(f"{setup(assistant, client.url)} starts ragpulse for {assistant}; restart it to see the tools")
