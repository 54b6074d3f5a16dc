"""`ragpulse serve`: a collector in the foreground, with its start-up text."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ragpulse_collector.app.collector import Collector
from ragpulse_collector.app.process import collect_garbage_rarely, cores, log_to_stderr, switch_threads_often
from ragpulse_collector.evaluation.budget import unknown_price
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.sampling import OFFLINE
from ragpulse_collector.settings import Settings

if TYPE_CHECKING:
    from ragpulse_collector.app.wiring import Components

GRPC_PORT = 4317
Say = Callable[[str], object]
_log = logging.getLogger("ragpulse.collector")
_RELOADING = threading.Lock()


def serve(load: Callable[[], Settings], *, loads: Sequence[str] = (), say: Say) -> None:
    """Serve until SIGINT or SIGTERM; raises a Refusal or OSError with the fix.

    `load` reads the settings, again at each SIGHUP.
    """
    settings = load()
    collect_garbage_rarely()
    switch_threads_often()
    log_to_stderr(as_json=settings.collector.log_format == "json")
    os.umask(0o077)  # the file holds people's questions: no other user of this computer may read it
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C library logs what is raised as well
    grpc_port = None if importlib.util.find_spec("grpc") is None else GRPC_PORT
    beside = cores() > 1  # on a single core a process of their own would only take turns with this one
    collector = Collector(settings, loads=loads, default_grpc_port=grpc_port, own_process=beside)
    ready = threading.Event()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, partial(_on_hangup, collector, load, ready, os.isatty(0)))

    def greet() -> None:
        say("\n".join(_greeting(collector)))
        ready.set()

    collector.run(greet, _end_in_time)


STOP_WITHIN_S = 4.0
"""Container runtimes and init systems wait ten seconds before they kill."""


def _end_in_time() -> None:
    """End this process soon, whatever hangs (a long import, a judge): the next start reads what is not in the file."""

    def end() -> None:
        _log.warning("the stop took longer than %s s: what was acknowledged is in the log of the file", STOP_WITHIN_S)
        os._exit(0)

    timer = threading.Timer(STOP_WITHIN_S, end)
    timer.daemon = True
    timer.start()


def _on_hangup(
    collector: Collector, load: Callable[[], Settings], ready: threading.Event, on_terminal: bool, *_: object
) -> None:
    """Reload on a thread of its own; where the terminal of the start is gone, stop."""
    if on_terminal and not os.isatty(0):
        signal.raise_signal(signal.SIGTERM)
        return
    threading.Thread(target=_reload, args=(collector, load, ready), name="ragpulse-reload", daemon=True).start()


def _reload(collector: Collector, load: Callable[[], Settings], ready: threading.Event) -> None:
    ready.wait()
    with _RELOADING:
        try:
            pending = collector.reload(load())
        except Refusal as error:
            _log.error("the settings stay as they are: %s", error)
            return
    _log.info("reloaded rules, monitors, prices and keys from %s", collector.settings.path() or "the environment")
    if pending:
        _log.warning("these changed settings need a restart: %s", ", ".join(pending))


def _greeting(collector: Collector) -> list[str]:
    from ragpulse_collector.api.shown_settings import shown_db  # everything is loaded when the greeting is written

    settings = collector.settings
    options = settings.collector
    lines = [
        f"ragpulse collector at {collector.url}   (pages, API and OTLP/HTTP on one port)",
        *([f"  OTLP/gRPC on port {collector.grpc_port}"] if collector.grpc_port else []),
        "",
        "  in your application:",
        "    import ragpulse",
        f'    ragpulse.configure(service_name="my-service", endpoint="{collector.url}")',
        "    # then @ragpulse.rag, @ragpulse.retriever, @ragpulse.llm on your functions",
        f"  or, for any OpenTelemetry exporter: OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}",
        "",
        f"  stored in {shown_db(options.db)}, for {options.retention_days:g} days or {options.retention_gb:g} GB",
        f"  configuration: {_configuration(settings)}",
        f"  evaluators: {_rules(collector)}",
        f"  checks run in a {'process' if collector.components.checks.own_process else 'thread'} of their own",
        *_changes(collector.components),
        f"  leaves this computer: {_leaving(settings, collector.components.unpriced)}",
    ]
    if model := collector.components.unpriced:
        lines.append(f"  nothing is judged: {unknown_price(model)}")
    if options.api_keys:
        lines.append(f"  keys needed: {', '.join(key.name for key in options.api_keys)}")
    return lines


def _rules(collector: Collector) -> str:
    rules = collector.components.rules.effective()
    return "; ".join(f"{', '.join(rule.evaluators)} at {rule.rate:g}" for rule in rules) or "none"


def _changes(components: Components) -> Iterator[str]:
    """Yield what got data under the rules before this start and gets none now, and the free checks that came back."""
    rules = components.rules
    before = (rules.earlier() or [set()])[-1]
    for name, readers in components.retired().items():
        if readers or name in before:
            yield f"  not evaluated any more: {name}" + (f"; {', '.join(readers)} gets no new data" if readers else "")
    back = sorted(rules.evaluated().intersection(OFFLINE.evaluators) - before)
    if back and before and components.settings.rule:
        yield f"  free checks beside your rules from now on: {', '.join(back)} (offline = false drops them)"


def _configuration(settings: Settings) -> str:
    path, code = settings.path(), settings.code()
    runs = f" (it runs Python code: {', '.join(code)})" if code else ""
    return f"{path}{runs}" if path else "defaults (no ragpulse.toml here)"


def _leaving(settings: Settings, unpriced: str | None = None) -> str:
    """Return what can leave: texts to judges that are asked, figures to the destinations of alerts."""
    parts = [*_to_judges(settings, unpriced), *_to_destinations(settings)]
    return "; ".join(parts) or f"nothing ({_why_nothing(settings, unpriced)})"


def _to_judges(settings: Settings, unpriced: str | None) -> Iterator[str]:
    remote = [judge for judge in settings.judges if not judge.is_local]
    if remote and not unpriced and "evaluate" in settings.collector.roles:
        receivers = " and ".join(f"{judge.model} at {judge.address or 'its provider'}" for judge in remote)
        yield (
            f"questions, contexts and answers of sampled traces go to {receivers}, "
            f"at most {settings.judge.budget_usd_per_day:g} USD a day{_of_month(settings)}{_of_rules(settings)}"
        )


def _to_destinations(settings: Settings) -> Iterator[str]:
    from ragpulse_evaluators.judges.protocol import is_loopback  # judges load with the first evaluation

    own = [("monitor " + monitor.name, monitor.webhook or monitor.slack) for monitor in settings.monitor]
    ways = [
        (place.name, place.webhook or place.slack or place.pagerduty_url or ("mail" if place.email else "PagerDuty"))
        for place in settings.destination
    ]
    names = [name for name, address in (*ways, *own) if address and not is_loopback(address)]
    if names:
        yield f"names, values and links of alerts go to {', '.join(names)}"


def _why_nothing(settings: Settings, unpriced: str | None) -> str:
    models = ", ".join(str(judge.model) for judge in settings.judges)
    if not models:
        return "no judge is configured"
    if all(judge.is_local for judge in settings.judges):
        return f"the judge {models} is on this computer"
    return f"the judge {models} is not asked" + ("" if unpriced else ": this process has not the role evaluate")


def _of_month(settings: Settings) -> str:
    month = settings.judge.budget_usd_per_month
    return "" if month is None else f", {month:g} a month"


def _of_rules(settings: Settings) -> str:
    limited = {rule.name: rule.budget_usd_per_day for rule in settings.rule if rule.budget_usd_per_day is not None}
    return "".join(f", {usd:g} of them for rule {name}" for name, usd in limited.items())
