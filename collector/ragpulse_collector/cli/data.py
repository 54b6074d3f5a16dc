"""`ragpulse sql`, `export`, `snapshot`, `prune`, `vacuum`, `migrate`, `remap`, `doctor`, `key`: the data itself."""

from __future__ import annotations

import hashlib
import secrets
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ragpulse_collector.cli.options import Failure, asker, download, option, source
from ragpulse_collector.cli.tables import cell, dotted, print_json, table


@click.command()
@click.argument("query")
@option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@source
def sql(query: str, as_json: bool, **where: Any) -> None:
    """One read-only SELECT over the views (docs/sql.md lists them)."""
    answer = asker(**where)("POST sql", {"query": query, "params": []})
    if as_json:
        print_json([dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]])
        return
    table("", answer["columns"], answer["rows"])


@click.command()
@click.argument("path", type=click.Path())
@option("--format", "kind", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@source
def export(path: str, kind: str, **where: Any) -> None:
    """Write the views to a folder (one file each), as Parquet or JSON lines."""
    folder = Path(path)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "views.tar"
        download("GET export", {"format": kind}, archive, where=where)
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                member.mode = 0o600
                click.echo(f"{folder / member.name}  {member.size:,} bytes")
            tar.extractall(folder, filter="data")


@click.command()
@click.argument("path", type=click.Path())
@source
def snapshot(path: str, **where: Any) -> None:
    """Copy the database, consistent, while the collector writes."""
    download("GET snapshot", {}, Path(path), where=where)
    click.echo(f"wrote {path} ({Path(path).stat().st_size:,} bytes)")


@click.command()
@option("--older-than", help="Age: 30d, 12h.")
@option("--service", help="Every trace in which this service took part (`demo`: the generated traffic).")
@option("--yes", is_flag=True, help="Do not ask.")
@source
def prune(older_than: str | None, service: str | None, yes: bool, **where: Any) -> None:
    """Delete what is older than an age, or everything of a service; recorded in the audit log."""
    if (older_than is None) == (service is None):
        raise click.UsageError("say either --older-than or --service")
    ask, wanted = asker(**where), {"older_than": older_than} if service is None else {"service": service}
    if not yes:
        held = _rows(ask("POST prune", wanted | {"dry_run": True})["deleted"])
        what = f"everything of the service {service}" if service else f"everything older than {older_than}"
        click.confirm(f"delete {what} ({held})?", abort=True)
    click.echo(_rows(ask("POST prune", wanted)["deleted"]))


def _rows(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{name}: {count}" for name, count in counts.items()) or "nothing is there"


@click.command()
@option("--db", default="ragpulse.duckdb", show_default=True, type=click.Path(dir_okay=False), help="A closed file.")
def vacuum(db: str) -> None:
    """Rewrite a closed file without the space that deletions freed (a running collector uses it again)."""
    from ragpulse_collector.store import StoreError
    from ragpulse_collector.store.retention import vacuum as rewrite

    if not Path(db).is_file():
        raise Failure(f"there is no file {db}")
    try:
        before, after = rewrite(Path(db))
    except StoreError as error:
        raise Failure(str(error)) from error
    click.echo(f"{db}: {before:,} bytes before, {after:,} now")


@click.command()
@option("--db", default="ragpulse.duckdb", show_default=True, type=click.Path(dir_okay=False), help="A closed file.")
@option("--in-place", is_flag=True, help="Make no copy of the older file first.")
def migrate(db: str, in_place: bool) -> None:
    """Bring a closed file of an older version to this one; `ragpulse serve` does the same when it starts."""
    from ragpulse_collector.store import StoreError
    from ragpulse_collector.store.schema import SCHEMA_VERSION
    from ragpulse_collector.store.upgrade import copy_path, migrate_file

    path = Path(db)
    if not path.is_file():
        raise Failure(f"there is no file {db}")
    try:
        before = migrate_file(path, in_place=in_place)
    except StoreError as error:
        raise Failure(str(error)) from error
    if before == SCHEMA_VERSION:
        click.echo(f"{db} has schema version {SCHEMA_VERSION} already")
        return
    copy = "no copy was made" if in_place else f"the copy before is {copy_path(path)}"
    click.echo(f"{db}: schema version {before} before, {SCHEMA_VERSION} now; {copy}")


@click.command()
@source
def remap(**where: Any) -> None:
    """Derive the canonical columns again from the stored raw attributes (after an upgrade)."""
    answer = asker(**where)("POST remap", {})
    click.echo(f"{answer['spans']} spans read, {answer['changed']} changed")


@click.command()
@option("--json", "as_json", is_flag=True)
@source
def status(as_json: bool, **where: Any) -> None:
    """What was received, rejected, evaluated and dropped."""
    answer = asker(**where)("GET status", {})
    if as_json:
        print_json(answer)
        return
    table("status", ("what", "value"), ((key, cell(value)) for key, value in dotted(answer)))


@click.command()
@source
def doctor(**where: Any) -> int:
    """What is wrong, and the mend; exit 1 when something is."""
    from ragpulse_collector.cli.diagnosis import diagnose

    findings = diagnose(**where)
    for finding in findings:
        click.echo(
            f"{'ok ' if finding.ok else 'BAD'}  {finding.what}"
            + (f"\n     mend: {finding.mend}" if finding.mend else "")
        )
    return int(any(not finding.ok for finding in findings))


@click.command()
@option("--scope", "scopes", multiple=True, type=click.Choice(["ingest", "read", "admin"]), default=("ingest",))
@option("--name", default="key", show_default=True)
def key(scopes: tuple[str, ...], name: str) -> None:
    """Make an API key: shown once; only its hash goes into ragpulse.toml."""
    if not name.isprintable() or '"' in name:
        raise Failure("--name must be printable text without quotes")
    secret = "rp_" + secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    click.echo(f"key (shown once): {secret}\n\nin ragpulse.toml:\n[collector]\napi_keys = [")
    click.echo(f'  {{ name = "{name}", scopes = [{listed}], sha256 = "{digest}" }},\n]')
