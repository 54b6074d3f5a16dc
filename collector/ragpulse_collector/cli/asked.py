"""Commands whose options are the parameters of an operation, read from its signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import click

from ragpulse_collector.cli.options import AGES, Ask, Json, Source, json_option, option, source, table_options
from ragpulse_collector.cli.tables import print_json, show
from ragpulse_collector.interface import Signature, signatures, unknown_parameter
from ragpulse_collector.refusals import Invalid, Refusal

_TYPES = {"integer": "INTEGER", "number": "FLOAT"}
_IGNORED = "Ignored: "
_MEMBERS = {"metadata": "metadata.", "labels": "label."}
"""Parameters whose members are options `KEY=VALUE`."""


class OperationCall(NamedTuple):
    """The request of a command."""

    ask: Ask
    address: str
    params: Json

    @property
    def tz(self) -> str:
        """The zone in which times are shown."""
        return str(self.params.get("tz", "UTC"))

    def answer(self) -> Json:
        """Ask the operation; a wrong parameter is a usage error."""
        try:
            answer: Json = self.ask(self.address, self.params)
        except Refusal as error:
            raise (click.UsageError(str(error)) if error.errors else error) from error
        return answer


class OfOperation(click.Command):
    """A command of an operation: it refuses options as the operation refuses parameters, and lists filters last."""

    signature: Signature

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; an unknown one is refused in the operation's words."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            raise click.UsageError(unknown_parameter(name, list(self.signature.parameters)), ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the filters."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Filters, repeatable: with one of the values": []}
        options, filters = sections.values()
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                (filters if self.filters_by(parameter) else options).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def filters_by(self, parameter: click.Parameter) -> bool:
        """Return whether an option is one of the filters, which help lists last."""
        return parameter.name in self.signature.filters and parameter.name not in ("from", "to", "tz", "where")


def asks(
    operation: str, *arguments: str, omit: Sequence[str] = (), tables: bool = True, **presets: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command with the parameters of an operation; `arguments` have no names, `NAME...` takes several.

    The function gets the request as `asked`, and its own options; `omit` names parameters that are no options.
    """
    signature = signatures()[operation]
    names = [one.removesuffix("...") for one in arguments]

    def decorated(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(source: Source, **options: Any) -> Any:
            given = {name: options.pop(name) for name in signature.parameters if name in options and name not in omit}
            try:
                address, params = signature.request({**_values(given), "since": _one(given.get("from") or ())})
            except Invalid as error:
                raise click.UsageError(str(error)) from error
            for name in given.keys() & params.keys():
                if (text := signature.parameters[name].get("description", "")).startswith(_IGNORED):
                    click.echo(f"--{name.replace('_', '-')} is {text[:1].lower()}{text[1:]}", err=True)
            return function(OperationCall(source.asker(), address, params), **options)

        wrapped = (table_options if tables else json_option)(source(run))
        for name in reversed([*signature.own, *signature.filters]):
            if name not in (*names, *omit):
                wrapped = _option(signature, name, presets.get(name))(wrapped)
        for one, name in reversed([*zip(arguments, names, strict=True)]):
            nargs = -1 if one.endswith("...") else 1
            wrapped = click.argument(name, nargs=nargs, required=False, metavar=one.upper())(wrapped)
        text = function.__doc__ or f"{signature.summary}\n\n{signature.text}"
        command = click.command(function.__name__, cls=OfOperation, help=text)(wrapped)
        command.signature = signature
        return command

    return decorated


def shows(operation: str, *arguments: str, **presets: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command that prints the answer of an operation as JSON with --json, else calls the function with it."""

    def decorated(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(asked: OperationCall, as_json: bool, **options: Any) -> None:
            answer = asked.answer()
            print_json(answer) if as_json else function(answer, asked, **options)

        return asks(operation, *arguments, **presets)(run)

    return decorated


def declared(name: str) -> click.Command:
    """Return the command that an operation declares under a name; raises KeyError."""
    known = {one.command.name: (operation, one.command) for operation, one in signatures().items() if one.command}
    operation, command = known[name]

    def run(answer: Json, asked: OperationCall) -> None:
        show(name, answer, command.columns, tz=asked.tz)

    run.__name__ = name
    return shows(operation, *command.arguments, **command.presets)(run)


def _option(signature: Signature, name: str, preset: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    schema, long = signature.parameters[name], "--since" if name == "from" else f"--{name.replace('_', '-')}"
    description = schema.get("description", "")
    help_text = f"{description[:1].upper()}{description[1:]}".replace("`", "")
    settings: dict[str, Any] = {"help": help_text, "hidden": description.startswith(_IGNORED)}
    if schema.get("type") == "boolean":
        return option(f"{long}/--no-{long[2:]}", name, default=None, **settings)
    if name == "from":
        settings |= {"help": AGES}
        preset = signature.back
    default = schema.get("default") if preset is None else preset
    choices = f"[{'|'.join(schema['enum'])}]" if "enum" in schema else _TYPES.get(schema.get("type", ""), "TEXT")
    metavar = {"from": "AGE", **dict.fromkeys(_MEMBERS, "KEY=VALUE")}.get(name, choices)
    short = ("-e",) if name == "evaluator" else ()
    defaults = [str(default)] if default not in (None, [], {}) else None
    return option(*short, long, name, multiple=True, default=defaults, metavar=metavar, **settings)


def _one(values: Any) -> Any:
    """Return the only value, else all: the operation refuses several where it takes one."""
    return values[0] if isinstance(values, tuple) and len(values) == 1 else values


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the options give."""
    values = {name: _one(value) for name, value in options.items() if name not in ("from", *_MEMBERS)}
    for name, prefix in _MEMBERS.items():
        for pair in options.get(name, ()):
            key, stated, value = pair.partition("=")
            if stated:
                values.setdefault(f"{prefix}{key}", []).append(value)
            else:
                values[name] = pair  # for the operation to refuse
    return values
