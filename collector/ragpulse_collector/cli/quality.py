"""`ragpulse replay`, `compare`, `check`, `monitor`: quality of stored traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.asked import OperationCall, asks, shows
from ragpulse_collector.cli.options import (
    COUNT,
    FILE,
    Ask,
    Json,
    Source,
    asker_of,
    asking,
    config_path,
    dry_run_option,
    evaluator_option,
    evaluators_option,
    gate,
    json_option,
    load_option,
    max_usd_option,
    option,
    prompts_option,
    range_option,
    source,
    table_options,
    where_option,
    yes_option,
)
from ragpulse_collector.cli.tables import (
    agree_to,
    cell,
    cost,
    interval,
    p_value,
    print_json,
    show,
    show_decision,
    table,
    watch,
)
from ragpulse_collector.words import called

if TYPE_CHECKING:
    from ragpulse_collector.cli.client_replay import LocalReplay


@click.command()
@evaluators_option
@option("--judge", help="Judge model; default: the collector's.")
@prompts_option
@load_option
@option("--here", is_flag=True, help="Evaluate in this process; --load and --prompts imply it.")
@range_option("7d")
@where_option
@option("--limit", type=COUNT, help="The most units.")
@max_usd_option
@dry_run_option
@yes_option
@json_option
@source
def replay(source: Source, here: bool, dry_run: bool, yes: bool, as_json: bool, **request: Any) -> int:
    """Evaluate stored traces. The bill comes first; a repeat continues. Exit 3: stopped at its cap."""
    if source.file:
        return _replay_offline(source.file, request, dry_run=dry_run, yes=yes, as_json=as_json)
    if not (here or request["loads"] or request["prompts"]):
        return _replay(source.asker(), request, dry_run=dry_run, yes=yes, as_json=as_json)
    from ragpulse_collector.cli.client_replay import LocalReplay

    local = LocalReplay(request)
    return _replay(source.asker(), request, local, dry_run=dry_run, yes=yes, as_json=as_json)


def _replay_offline(db: str, request: dict[str, Any], **flags: Any) -> int:
    """Replay over a closed file, with a collector without a port that runs as long as the replay."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.configuration import load_settings

    # Files to load may not come over HTTP, therefore there is no port.
    settings = load_settings(config_path(None))
    settings = settings.with_options("collector", {"db": db, "host": "127.0.0.1", "port": 0})
    collector = Collector(settings.with_options("judge", {"model": request["judge"]}), loads=request["loads"])
    try:
        collector.start(listen=False)
        return _replay(asker_of(collector.components.operations), request, **flags)
    finally:
        collector.stop()


def _replay(
    ask: Ask, request: dict[str, Any], local: LocalReplay | None = None, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Print the bill, ask, and run; with `local` the evaluators run in this process."""
    params = request if local is None else local.request(request)
    bill = ask("POST replays", params | {"dry_run": True})
    if local is not None:
        bill = local.bill(bill, request["max_usd"])
    if not as_json:
        click.echo(f"{bill['count']} units, {bill['already']} already scored; {cost(bill)}")
    if dry_run:
        if as_json:
            print_json(bill)
        return 0
    agree_to(bill, "replay", yes=yes)
    runs = ask("POST replays", params)["replays"]
    follow = watch if local is None else local.follow
    finished = [follow(ask, run, quiet=as_json) for run in runs]
    results = [run | {"result": ask(f"GET replays/{run['run_id']}/result", {})} for run in finished]
    if as_json:
        print_json({"replays": results})
    for run in () if as_json else results:
        _show_result(run)
    capped = [run for run in finished if run["status"] == "capped"]
    for run in capped:
        click.echo(
            f"ragpulse: replay {run['run_id']} stopped at its cap: {run['done']} of {run['total']} units are scored"
            f" ({run['reason'] or 'no case fits'}); the same command with a larger --max-usd continues",
            err=True,
        )
    if any(run["status"] == "failed" for run in finished):
        return 1
    return 3 if capped else 0


def _show_result(run: Json) -> None:
    """Print what a replay found, and whether it is in use."""
    result, against = run["result"], run["result"]["against"]
    lines = [("scores", result["words"])]
    lines += [(part["status"], f"{part['n']}: {part['reason'] or 'no reason recorded'}") for part in result["left_out"]]
    if result["labels"]:
        lines.append(("people", f"agree on {interval(result['people'])} of {result['labels']} labels"))
    if against:
        other = f"{called(against['evaluator'])} {against['version']} {against['judge'] or ''}".rstrip()
        text = f"{against['verdict']}, {interval(against['difference'])} on {against['shared']} answers"
        lines += [(f"against {other}", text), ("agreement", interval(against["agreement"]))]
    use = (
        "in use"
        if run["in_use"]
        else f"exploratory; `ragpulse replays use {run['run_id']}` lets lists and charts read it"
    )
    table("", ("", run["run_id"]), [*lines, ("use", use)])


_REPLAYS = {
    "run": "run_id", "evaluator": "evaluator", "status": "status", "ok": "ok", "total": "total", "cost": "cost_usd",
    "in use": "in_use", "judge": "judge", "version": "version", "created": "created_at",
}  # fmt: skip


@click.command()
@click.argument("action", type=click.Choice(("list", "show", "use", "set-aside", "delete")), default="list")
@click.argument("run_id", required=False)
@yes_option
@table_options
@asking
def replays(ask: Ask, action: str, run_id: str | None, yes: bool, as_json: bool) -> None:
    """List replays; show the result of one, use its scores from now on, set them aside, or delete it."""
    if action == "list":
        runs = ask("GET replays", {})["replays"]
        print_json(runs) if as_json else show("replays", {"replays": runs}, {"replays": _REPLAYS})
        return
    if run_id is None:
        raise click.UsageError("name a replay: `ragpulse replays` lists them")
    if action == "delete":
        if not yes:
            click.confirm("delete the replay and its scores?", abort=True)
        ask(f"DELETE replays/{run_id}", {})
        return
    run = ask(f"GET replays/{run_id}" if action == "show" else f"POST replays/{run_id}/{action.replace('-', '_')}", {})
    run["result"] = ask(f"GET replays/{run_id}/result", {})
    print_json(run) if as_json else _show_result(run)


_STRATA = {"value": "value", "a": "a", "b": "b", "difference": "difference", "verdict": "verdict"}
_FLIPS = {"question": "query", "a": "a", "b": "b", "trace": "trace_id"}


@shows("GET compare", "a", "b")
def compare(answer: Json, asked: OperationCall) -> None:
    """Compare two sides: difference, interval, test, worst flips.

    A and B are NAME@VERSION, judge:..., run:ID, prompt:v7, model:..., variant:..., service:..., release:..., tag:...,
    metadata.KEY:... or label.NAME:....
    """
    sides = {called(answer[side]["name"]): answer[side] for side in ("a", "b")}
    rows = [(name, interval(side)) for name, side in {**sides, "difference b - a": answer["difference"]}.items()]
    table("", ("side", "estimate"), rows)
    test = answer["test"]
    result = "no test" if test is None else f"{test['name']}, {p_value(test['p'])}"
    needs = f" (need about {answer['need_more']} more)" if answer.get("need_more") else ""
    if answer.get("need_more_of") == "verdicts":
        needs = f" (missing verdicts: between {answer['least']:+.3f} and {answer['most']:+.3f})"
    paired = "paired" if answer["paired"] else "unpaired"
    click.echo(f"verdict: {answer['verdict']}{needs}   {paired}, {result}")
    if mix := answer.get("mix"):
        click.echo(f"the mix changed: {mix}")
    within = f"within each {asked.params.get('by')}"
    lists = {within: answer["strata"], "worst flips": answer["flips"][:10]}
    columns = {within: _STRATA, "worst flips": _FLIPS}
    show("compare", lists, {name: columns[name] for name, rows in lists.items() if rows})


@click.command()
@evaluator_option
@option("--min", type=float, help="Required quality on the normalized score, 0..1.")
@option("--max", type=float, help="Or the most that is allowed, of a fail rate or an unclear rate.")
@option("--measure", help="quality (default), pass_rate, fail_rate or unclear_rate.")
@range_option("1d")
@where_option
@option("--summary", type=FILE, help="Append a Markdown summary to this file.")
@option("--corrected/--judge-alone", default=True, help="Whether enough labels of people correct the judge's figure.")
@source
@gate
def check(source: Source, summary: str | None, corrected: bool, **params: Any) -> int:
    """Check quality in CI. Exit 0: limit kept; 1: not kept; 3: undecided, the interval holds it; 2: could not run."""
    answer = source.asker()("GET check", {**params, "corrected": str(corrected).lower()})
    status = show_decision(answer, summary)
    if (correction := answer.get("correction")) and not answer.get("uncorrected"):
        click.echo(f"ragpulse: {correction}", err=True)
    if note := answer.get("note"):
        click.echo(f"ragpulse: {note}; choose --min for it", err=True)
    return status


@option("--save", is_flag=True, help="Store the monitor; without it nothing changes.")
@asks("GET monitors/preview", "name", omit=("tz",), tables=False)
def monitor(call: OperationCall, save: bool, as_json: bool) -> None:
    """Preview a monitor: how often it would have fired in the last week."""
    if save and "name" not in call.params:
        raise click.UsageError("a monitor that is stored needs a name: ragpulse monitor NAME")
    preview = call.answer()
    times = "once" if preview["would_have_fired"] == 1 else f"{preview['would_have_fired']} times"
    shown = [f"would have fired {times} in the last {preview['days']} days"]
    shown += [f"  {cell(firing['t'])}  {firing['text']}" for firing in preview["firings"][-5:]]
    print_json(preview) if as_json else click.echo("\n".join(shown))
    if save:
        call.ask("POST monitors", call.params)
        click.echo(f"stored: {call.params['name']}", err=as_json)
