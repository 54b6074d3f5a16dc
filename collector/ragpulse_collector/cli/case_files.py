"""Files of cases: JSON lines, a JSON array, CSV, YAML and Parquet; the column names of other packages as ours.

    path ─ text_of ─▶ text ─ rows_of ─▶ (place, row) ─ ours ─▶ rows of `Case` fields

A line of JSON ends at a line feed alone: a text may hold every other separator of lines.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ragpulse_collector.cli.options import Failure
from ragpulse_evaluators.columns import COLUMNS, ours

_FORMS = "JSON lines, a JSON array, CSV, YAML or Parquet"
_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One case of a file."""

    place: str
    """The file with the line or the number of the case."""
    fields: Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Return the cases of a file with the names of `Case`; raises Failure naming the place and the mistake.

    The columns that were renamed are printed once.
    """
    rows, names = [], dict[str, str]()
    for number, value in _numbered(path):
        place = f"{path}:{number}"
        if not isinstance(value, dict):
            raise Failure(f"{place}: each case must be an object with named fields, as in {_FORMS}")
        try:
            fields, renamed = ours(value)
        except ValueError as error:
            raise Failure(f"{place}: {error}") from error
        rows.append(Row(place, fields))
        names = renamed | names
    if names:
        listed = ", ".join(f"{theirs} as {field}" for theirs, field in names.items())
        click.echo(f"ragpulse: {path}: read {listed}", err=True)
    return rows


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that hold something, with their numbers; only a line feed ends a line."""
    yield from _lines(text_of(path))


def text_of(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without its mark; raises Failure that names another encoding."""
    content = path.read_bytes()
    encoding = next((name for mark, name in _ENCODINGS if content.startswith(mark)), None)
    if encoding is None and b"\0" in content[:4096]:
        encoding = "UTF-16"
    if encoding is None:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            encoding = "Latin-1 (ISO 8859-1)"
            place = content.count(b"\n", 0, error.start) + 1
            raise Failure(f"{path}:{place}: {_not_utf8(path, encoding, 'LATIN1')}") from error
    raise Failure(f"{path}: {_not_utf8(path, encoding, encoding)}")


def _not_utf8(path: Path, encoding: str, name: str) -> str:
    return f"this is not UTF-8 but looks like {encoding}: convert it with `iconv -f {name} -t UTF-8 {path}`"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _numbered(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the cases of a file with their line (JSON lines, CSV) or number."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        return enumerate(_parquet(path), 1)
    text = text_of(path)
    if kind in (".csv", ".tsv"):
        return enumerate(_csv(path, text, "\t" if kind == ".tsv" else None), 2)
    if kind in (".yaml", ".yml"):
        return enumerate(_yaml(path, text), 1)
    if text.lstrip()[:1] == "[":
        return enumerate(_parsed(str(path), text), 1)
    return ((number, _parsed(f"{path}:{number}", line)) for number, line in _lines(text))


def _parquet(path: Path) -> list[Any]:
    """Return the rows as JSON has them: times and decimals as text."""
    import duckdb

    try:
        with duckdb.connect() as connection:
            rows = connection.execute("select to_json(t)::VARCHAR from read_parquet(?) t", [str(path)]).fetchall()
    except duckdb.Error as error:
        raise Failure(f"{path}: not Parquet: {error}") from error
    return [json.loads(text) for (text,) in rows]


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failure(f"{place}: not JSON: {error}") from error


def _yaml(path: Path, text: str) -> list[Any]:
    """Return the items of a list, or the documents of a file."""
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise Failure(f"{path}: not YAML: {error}") from error
    return documents[0] if len(documents) == 1 and isinstance(documents[0], list) else documents


def _csv(path: Path, text: str, delimiter: str | None) -> Iterator[dict[str, Any]]:
    """Yield the rows below the header. An empty cell is no value, but an empty answer."""
    head = text.split("\n", 1)[0]
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=delimiter or max(",;\t", key=head.count), strict=True
    )
    try:
        for number, row in enumerate(reader, 2):
            if None in row or None in row.values():
                raise Failure(f"{path}:{number}: this row has another number of cells than the header")
            yield {name: _cell(name, cell, row) for name, cell in row.items() if cell or _field(name) == "response"}
    except csv.Error as error:
        raise Failure(f"{path}:{reader.line_num}: not CSV: {error}") from error


def _cell(name: str, cell: str, row: Mapping[str, str]) -> Any:
    """Return a cell: several references are written as JSON, and DeepEval writes passages with a bar between them."""
    if _field(name) == "reference" and cell.lstrip().startswith("["):
        with suppress(ValueError):
            return json.loads(cell)
    if "source_file" in row and name in ("context", "retrieval_context"):
        return cell.split("|")
    return cell


def _field(name: str) -> str:
    return COLUMNS.get(name, name)
