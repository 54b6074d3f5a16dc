"""digest: what a week brought."""

from __future__ import annotations

import click

from ragpulse_collector.cli.options import Ask, asking, json_option, since_option
from ragpulse_collector.cli.tables import print_json, safe, table


@click.command()
@since_option("7d")
@json_option
@asking
def digest(ask: Ask, since: str, as_json: bool) -> None:
    """Show the last week: what changed, what failed, what was not measured."""
    answer = ask("GET digest", {"from": since})
    if as_json:
        return print_json(answer)
    click.echo("\n".join(map(safe, answer["lines"])))
    if answer["worst"] and not answer["quiet"]:
        rows = ((one["score"], one["trace_id"], one["query"]) for one in answer["worst"])
        table("worst answers", ("score", "trace", "question"), rows)
