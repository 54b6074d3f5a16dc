"""`ragpulse replay`, `compare`, `check`, `plan`, `monitors`, `monitor`: quality over stored traces, and who is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragpulse_collector.cli.client_replay import Caller
from ragpulse_collector.cli.options import (
    EXISTING_FOLDER,
    FILE,
    Ask,
    Failure,
    Source,
    asking,
    evaluators_option,
    failing,
    json_option,
    load_option,
    option,
    since_option,
    since_yesterday,
    source,
    where_option,
)
from ragpulse_collector.cli.tables import agree_to, cost, interval, print_json, table, watch


@click.command()
@evaluators_option
@option("--judge", help="Judge model; default: the collector's.")
@option(
    "--prompts",
    type=EXISTING_FOLDER,
    help="Folder of prompt files that replace the built-in ones.",
)
@load_option
@since_option
@where_option
@option("--limit", type=int, help="At most so many units.")
@option("--max-usd", type=float, help="Stop before spending more than this.")
@option("--dry-run", is_flag=True, help="Only print count, tokens and cost.")
@option("--yes", is_flag=True, help="Do not ask before spending.")
@json_option
@source
def replay(
    where: Source, evaluators: tuple[str, ...], condition: str | None, dry_run: bool, yes: bool, as_json: bool,
    **options: Any
) -> int:  # fmt: skip
    """Run stored traces through evaluators: resumable, idempotent, the bill first. Exit 3: stopped by its cap."""
    request = {"evaluators": list(evaluators), "where": condition, **options, "loads": list(options.pop("loads"))}
    if where.file:
        return _replay_offline(where.file, request, dry_run=dry_run, yes=yes, as_json=as_json)
    caller = Caller(request) if request["loads"] or request["prompts"] else None
    return _replay(where.asker(), request, caller, dry_run=dry_run, yes=yes, as_json=as_json)


def _replay_offline(db: str, request: dict[str, Any], **how: Any) -> int:
    """Replay over a closed file: a collector without a port works for as long as the replay takes."""
    from ragpulse_collector.app.offline import working_on
    from ragpulse_collector.cli.options import config_path
    from ragpulse_collector.store import StoreError

    opened = working_on(db, config_path(None), loads=request["loads"], judge=request["judge"])
    with failing(OSError, ValueError, StoreError), opened as ask:
        return _replay(ask, request, **how)


def _replay(
    ask: Ask, request: dict[str, Any], caller: Caller | None = None, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Bill, ask, run; with a `caller` the evaluators are this process's own."""
    wanted = request if caller is None else caller.request(request)
    bill = ask("POST replays", wanted | {"dry_run": True})
    if caller is not None:
        bill = caller.bill(bill, request["max_usd"])
    if not as_json:
        _print_bill(bill)
    if dry_run:
        if as_json:
            print_json(bill)
        return 0
    agree_to(bill, "replay", yes=yes)
    runs = ask("POST replays", wanted)["replays"]
    follow = watch if caller is None else caller.follow
    finished = [follow(ask, run, quiet=as_json) for run in runs]
    if as_json:
        print_json({"replays": finished})
    capped = [run for run in finished if run["status"] == "capped"]
    for run in capped:
        click.echo(
            f"ragpulse: replay {run['run_id']} stopped at its cap: {run['done']} of {run['total']} units are scored"
            f" ({run['reason'] or 'no case fits'}); the same command goes on with a larger --max-usd",
            err=True,
        )
    if any(run["status"] == "failed" for run in finished):
        return 1
    return 3 if capped else 0


def _print_bill(bill: dict[str, Any]) -> None:
    click.echo(f"{bill['count']} units, {bill['already']} already scored; {cost(bill)}")


@click.command()
@click.argument("a")
@click.argument("b")
@option("-e", "--evaluator", help="Quality metric to compare by (default: every one both sides have).")
@since_option
@where_option
@json_option
@asking
def compare(ask: Ask, a: str, b: str, evaluator: str | None, since: str, condition: str | None, as_json: bool) -> None:
    """Two sides (NAME@x, judge:..., run:ID, prompt:v7, model:...): difference, interval, test, worst flips."""
    params = {"a": a, "b": b, "evaluator": evaluator, "from": f"-{since}", "where": condition}
    answer = ask("GET compare", params)
    if as_json:
        print_json(answer)
        return
    rows = [
        (answer["a"]["name"], interval(answer["a"])),
        (answer["b"]["name"], interval(answer["b"])),
        ("difference b - a", interval(answer["difference"])),
    ]
    table("", ("side", "estimate"), rows)
    test = answer.get("test") or {"name": "no test", "p": None}
    needs = f" (need about {answer['need_more']} more)" if answer.get("need_more") else ""
    paired = "paired" if answer["paired"] else "unpaired"
    click.echo(f"verdict: {answer['verdict']}{needs}   {paired}, {test['name']} p={test['p']}")
    if answer["flips"]:
        table(
            "worst flips",
            ("trace", "query", "a", "b"),
            ((f["trace_id"], (f["query"] or "")[:60], f["a"], f["b"]) for f in answer["flips"][:10]),
        )


@click.command()
@option("-e", "--evaluator", required=True)
@option("--min", "minimum", type=float, required=True, help="Required quality on the normalized score, 0..1.")
@since_yesterday
@where_option
@option("--summary", type=FILE, help="Append a Markdown summary to this file.")
@source
def check(where: Source, evaluator: str, minimum: float, since: str, condition: str | None, summary: str | None) -> int:
    """Gate for CI: exit 0 above, 1 below, 3 undecided (the interval holds the limit), 2 could not run."""
    try:
        params = {"evaluator": evaluator, "min": minimum, "from": f"-{since}", "where": condition}
        answer = where.asker()("GET check", params)
    except Failure as failure:
        click.echo(f"ragpulse: {failure}", err=True)
        return 2
    click.echo(f"{evaluator} >= {minimum}: {answer['verdict']}   {interval(answer)}")
    if note := answer.get("note"):
        click.echo(f"ragpulse: {note}; choose --min for it", err=True)
    if summary:
        with Path(summary).open("a", encoding="utf-8") as out:
            out.write(answer["markdown"] + "\n")
    return {"above": 0, "below": 1, "undecided": 3}[answer["verdict"]]


@click.command()
@option("-e", "--evaluator", required=True)
@option("--half-width", type=float, required=True, help="Wanted precision, e.g. 0.02 for +-0.02.")
@since_option
@json_option
@asking
def plan(ask: Ask, evaluator: str, half_width: float, since: str, as_json: bool) -> None:
    """How many traces to score, at which rate, for how much."""
    answer = ask("GET plan", {"evaluator": evaluator, "half_width": half_width, "from": f"-{since}"})
    if as_json:
        print_json(answer)
        return
    table("plan", ("what", "value"), answer.items())


@click.command()
@asking
def monitors(ask: Ask) -> None:
    """Show the monitors with their states, and what each can detect."""
    answer = ask("GET monitors", {})
    rows = [
        (one["name"], one["metric"], one["condition"], one["state"], one["text"] or "", one["detects"] or "")
        for one in answer["monitors"]
    ]
    table("monitors", ("name", "metric", "condition", "state", "now", "detects"), rows)


@click.command()
@click.argument("name")
@option("--metric", required=True, help="As in `ragpulse metrics`: quality:groundedness, latency_p95, requests.")
@option("--condition", required=True, help="'< 0.85', '> 3000', 'change' or 'no data'.")
@option("--window", default="1h", help="The time that one look covers.")
@option("--where", "condition_where", help="One SQL boolean over the columns of `traces`.")
@option("--notify", multiple=True, help="A [[destination]] of ragpulse.toml; repeatable.")
@option("--min-n", type=int, default=0, help="Fewer answers or requests decide nothing.")
@option("--false-alarms-per-year", type=float, default=4.0, help="Over all groups.")
@option("--save", is_flag=True, help="Keep the monitor; without it nothing is changed.")
@asking
def monitor(
    ask: Ask, name: str, condition_where: str | None, notify: tuple[str, ...], save: bool, **given: Any
) -> None:
    """Show how often a monitor would have fired in the last week and what it can detect; keep it with --save."""
    draft = {**given, "name": name, "where": condition_where, "notify": list(notify)}
    found = ask("GET monitors/preview", draft)
    times = "once" if found["would_have_fired"] == 1 else f"{found['would_have_fired']} times"
    click.echo(f"would have fired {times} in the last {found['days']} days")
    for firing in found["firings"][-5:]:
        click.echo(f"  {firing['t']}  {firing['text']}")
    click.echo(found["detects"] or "what it can detect is not known for this metric")
    if save:
        ask("POST monitors", draft)
        click.echo(f"kept: {name}")
