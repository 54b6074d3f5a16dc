"""topics, digest, gaps: what users ask, what a week brought, and what users miss."""

from __future__ import annotations

from typing import Literal

import click

from ragpulse_collector.cli.asked import OperationCall, asks, shows
from ragpulse_collector.cli.options import Json, option
from ragpulse_collector.cli.tables import cell, print_json, safe, show

_TOPICS = {
    "topic": "name", "": "worse", "n": "n", "share": "share", "unanswered": "unanswered", "{evaluator}": "quality",
    "id": "topic_id", "question": "question",
}  # fmt: skip


@option("--rename", nargs=2, metavar="ID NAME", help="Name a topic, here and in its traces.")
@option("--fit", is_flag=True, help="Find topics again, in the background of the collector.")
@asks("GET topics", limit=20)
def topics(asked: OperationCall, rename: tuple[str, str] | None, fit: bool, as_json: bool) -> None:
    """List what users ask, the topics with the most answers lost first; `worse` surely fail more often."""
    if rename and (note := asked.ask(f"PUT topics/{rename[0]}", {"name": rename[1]})["note"]):
        click.echo(safe(note), err=True)
    if fit:
        asked.ask("POST topics/fit", {})
    answer = asked.answer()
    if as_json:
        return print_json(answer)
    title = f"topics ({answer['n']:,} questions)"
    show("topics", {**answer, title: answer["topics"]}, {title: _TOPICS})
    moves = ((word, answer[word]) for word in ("appeared", "vanished", "grew"))
    notes = [f"{word}: {', '.join(names)}" for word, names in moves if names]
    state = [*filter(None, [answer["problem"], answer["running"] and "a fit runs"])]
    if not (state or answer["fit"]):
        state = ["no topics yet: a collector finds the first within a minute"]
    click.echo(safe("\n".join([*notes, *state])))


@shows("GET digest")
def digest(answer: Json, asked: OperationCall) -> None:
    """Show the last week: what changed, what failed, what was not measured."""
    click.echo("\n".join(map(safe, answer["lines"])))
    if answer["worst"] and not answer["quiet"]:
        lead = answer["overview"]["lead"]
        columns = {lead: f"scores.{lead}", "question": "query+name", "trace": "trace_id"}
        show("digest", {"worst answers": answer["worst"]}, {"worst answers": columns}, tz=asked.tz)


@option("--format", "form", type=click.Choice(["text", "csv", "markdown"]), default="text", help="How to print them.")
@option("--dataset", help="Add the failed questions to this dataset.")
@asks("GET gaps", omit=("dataset",), tables=False)
def gaps(asked: OperationCall, form: Literal["text", "csv", "markdown"], dataset: str | None, as_json: bool) -> None:
    """List groups of questions that are declined or answered without support, for whoever writes documents."""
    from ragpulse_collector.words.figures import csv_text

    columns = ("kind", "question", "terms", "users", "share", "failing", "nearest")
    answer = asked.answer()
    found = answer["gaps"]
    if dataset and (ids := list({trace_id: None for gap in found for trace_id in gap["trace_ids"]})):
        asked.ask(f"POST datasets/{dataset}", {"trace_ids": ids[:1000]})
    if as_json:
        return print_json(answer)
    texts = {
        "text": "\n".join([gap["text"] for gap in found] or ["no group of questions fails more often than the others"]),
        "csv": csv_text([columns, *([cell(gap[name]) for name in columns] for gap in found)]).rstrip(),
        "markdown": "\n".join(gap["issue"] for gap in found),
    }
    click.echo(safe(texts[form]))
