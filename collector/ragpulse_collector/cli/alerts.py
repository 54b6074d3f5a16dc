"""`ragpulse monitors`, `ragpulse monitor`: what is watched, and a new monitor with what it can detect."""

from __future__ import annotations

from typing import Any

import click

from ragpulse_collector.cli.options import asker, option, source
from ragpulse_collector.cli.tables import table


@click.command()
@source
def monitors(**where: Any) -> None:
    """Show the monitors with their states, and what each can detect."""
    answer = asker(**where)("GET monitors", {})
    rows = [
        (one["name"], one["metric"], one["condition"], one["state"], one["text"] or "", one["detects"] or "")
        for one in answer["monitors"]
    ]
    table("monitors", ("name", "metric", "condition", "state", "now", "detects"), rows)


@click.command()
@click.argument("name")
@option("--metric", required=True, help="As in `ragpulse metrics`: quality:groundedness, latency_p95, requests.")
@option("--condition", required=True, help="'< 0.85', '> 3000', 'change' or 'no data'.")
@option("--window", default="1h", show_default=True, help="The time that one look covers.")
@option("--where", "condition_where", help="One SQL boolean over the columns of `traces`.")
@option("--notify", multiple=True, help="A [[destination]] of ragpulse.toml; repeatable.")
@option("--min-n", type=int, default=0, help="Fewer answers or requests decide nothing.")
@option("--false-alarms-per-year", type=float, default=4.0, show_default=True, help="Over all groups.")
@option("--save", is_flag=True, help="Keep the monitor; without it nothing is changed.")
@source
def monitor(name: str, condition_where: str | None, notify: tuple[str, ...], save: bool, **given: Any) -> None:
    """Show how often a monitor would have fired in the last week and what it can detect; keep it with --save."""
    ask = asker(*(given.pop(key) for key in ("url", "db", "api_key")))
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
