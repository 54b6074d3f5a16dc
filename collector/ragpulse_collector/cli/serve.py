"""`ragpulse serve`, `ragpulse demo` and `ragpulse run`: start something."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.options import config_option, config_path, option
from ragpulse_collector.cli.tables import interval, table
from ragpulse_collector.words import called

if TYPE_CHECKING:
    from ragpulse_collector.client import Client
    from ragpulse_collector.settings import Settings

DEADLINE_S = 45.0
"""How long the demo waits for its evaluations."""


@click.command()
@option("--db", help="DuckDB file, or ducklake:... (default ragpulse.duckdb).")
@option("--host", help="Address to listen on (default 127.0.0.1; others need API keys).")
@option("--port", type=int, help="Port for OTLP/HTTP, API and pages (default 4318; 0 = any).")
@option("--grpc-port", type=int, help="Port for OTLP/gRPC (default 4317 with the [grpc] extra).")
@option("--grpc/--no-grpc", default=None, help="Whether to receive OTLP/gRPC (default: where [grpc] is installed).")
@config_option
@option(
    "--load",
    "loads",
    env="RAGPULSE_LOAD",
    multiple=True,
    type=click.Path(),
    help="Python or YAML file with evaluators; repeatable.",
)
@option(
    "--judge",
    env="RAGPULSE_JUDGE",
    help="Judge model: ollama/NAME, http://host:port/v1#NAME, or any litellm name. "
    "Without it and [judge] model no judge is called.",
)
@option("--roles", help="Comma-separated: ingest,evaluate,maintain (default all).")
def serve(config: str | None, loads: tuple[str, ...], judge: str | None, roles: str | None, **options: Any) -> int:
    """Start the collector: OTLP, API and pages on one port.

    Every setting of ragpulse.toml is also an environment variable: RAGPULSE_PORT, RAGPULSE_DB, RAGPULSE_JUDGE_MODEL ...
    """
    from ragpulse_collector.app.serve import serve as run
    from ragpulse_collector.configuration import load_settings

    path = config_path(config)

    def load() -> Settings:
        # A file that was there at the start and is gone at SIGHUP is an error: without it there would be no keys.
        settings = load_settings(path or config_path(None)).with_options("judge", {"model": judge})
        settings = settings.with_options("collector", {**options, "roles": roles.split(",") if roles else None})
        settings = _with_key(settings)
        settings.check()
        return settings

    run(load, loads=loads, say=click.echo)
    return 0


@click.command()
@config_option
def healthy(config: str | None) -> None:
    """Check that the collector of this machine or container can store. Exit 1 where it cannot."""
    import ssl

    from ragpulse_collector.client import Client
    from ragpulse_collector.configuration import load_settings

    collector = load_settings(config_path(config)).collector
    scheme = "https" if collector.tls_certificate else "http"
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the request stays inside the machine: no name to check
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    client = Client(f"{scheme}://127.0.0.1:{collector.port}", timeout_s=4, context=unchecked)
    click.echo(client.request("GET", "/readyz", accept="text/plain").decode("utf-8", "replace").strip())


def _with_key(settings: Settings) -> Settings:
    """Add the key of the first start, or make it now and print it: a container has no other way in."""
    from ragpulse_collector.settings import ApiKey, SettingsError

    collector = settings.collector
    if not collector.generate_key or collector.api_keys or not collector.needs_key:
        return settings
    if collector.on_a_lake:
        raise SettingsError("generate_key is for one process over a file: on a lake give all of them the same api_keys")
    path = Path(f"{collector.db}.key")
    if path.exists():
        key = ApiKey.model_validate_json(path.read_text(encoding="utf-8"))
    else:
        secret, key = ApiKey.generated("generated", ("admin",))
        path.touch(mode=0o600)
        path.write_text(key.model_dump_json(), encoding="utf-8")
        click.echo(f"API key (shown once; delete {path} for a new one): {secret}")
    made = settings.with_options("collector", {"api_keys": [key.model_dump()]})
    return made.placed({("collector", "api_keys"): str(path)})


@click.command()
@option(
    "--serve/--exit",
    "serving",
    default=None,
    help="Serve the pages after the table until Ctrl-C, or end (default: serve on a terminal).",
)
@option("--model", help="Answer with this litellm model instead of the extractive answerer.")
@option("--judge", help="Also judge with this litellm model (default: the offline checks only).")
@option("--port", type=int, default=0, help="Port of the demo's collector; 0: any free one.")
def demo(serving: bool | None, model: str | None, judge: str | None, port: int) -> int:
    """Run a small RAG application over ragpulse's guides, offline, and print its efficiency and quality."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.client import connect
    from ragpulse_collector.settings import Settings

    with tempfile.TemporaryDirectory(prefix="ragpulse-demo-") as folder:
        options = {"db": str(Path(folder) / "demo.duckdb"), "port": port, "settle_s": 0.5}
        collector = Collector(Settings().with_options("collector", options).with_options("judge", {"model": judge}))
        collector.start()
        try:
            client, started = connect(collector.url), time.monotonic()
            questions = _ask_everything(client, model)
            done = _wait_for_evaluations(client, questions)
            click.echo(f"answered {questions} questions, {done} results, {time.monotonic() - started:.1f} s\n")
            _report(client)
            if sys.stdout.isatty() if serving is None else serving:
                click.echo(f"\npages: {collector.url}/   (Ctrl-C ends)")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
            else:
                click.echo("\npages: ragpulse demo --serve")
        finally:
            collector.stop()
    return 0


def _ask_everything(client: Client, model: str | None) -> int:
    from ragpulse_collector.demo.application import model_generator
    from ragpulse_collector.demo.traffic import HOURS, VERSIONS, traffic, visits

    # A model answers each question once per version: it may cost money.
    planned = visits(rounds=1) if model else visits()
    click.echo(f"collector at {client.url}")
    click.echo(
        f"{len(planned)} visits with {len({visit.question for visit in planned})} questions, spread over the last"
        f" {HOURS:g} hours"
    )
    click.echo(f"half way the prompt {VERSIONS[0]} is replaced by {VERSIONS[1]}")
    for request in traffic(planned, generate=model_generator(model, _complete) if model else None):
        client.request("POST", f"/v1/{request.signal}", body=request.body, content_type=request.content_type)
    return len(planned)


def _complete(model: str, prompt: str) -> Any:
    import asyncio

    from ragpulse_evaluators.judges.providers import as_judge

    judge = as_judge(model)
    assert judge is not None, "a model was named"
    return asyncio.run(judge.ask([{"role": "user", "content": prompt}]))[0]


def _wait_for_evaluations(client: Client, traces: int) -> int:
    """Wait until no job is pending and return the number of results; raises TimeoutError after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        decided = client.sql("select count(distinct trace_id) as n from decisions").rows()[0]["n"]
        state = client.call("GET status")["evaluations"]
        if decided >= traces and state["pending"] == 0:
            return int(client.sql("select count(*) as n from scores").rows()[0]["n"])
        time.sleep(0.1)
    raise TimeoutError(f"evaluations did not finish within {DEADLINE_S:.0f} s: {state}")


_FIGURES = {
    "requests": "requests", "errors": "errors", "latency_p50": "latency p50 ms", "latency_p95": "latency p95 ms",
    "input_tokens": "tokens in", "output_tokens": "tokens out", "cost_usd": "cost USD",
    **{f"quality:{name}": called(name)
       for name in ("groundedness", "context_utilization", "citation_check", "refusal", "faithfulness")},
    "fail_rate:groundedness": "fail share", "unclear_rate:groundedness": "unclear share",
}  # fmt: skip


def _report(client: Client) -> None:
    """Print one column for each prompt version: efficiency, quality with interval, and the verdict."""
    from ragpulse_collector.demo.traffic import VERSIONS

    names, rows = list(_FIGURES), []
    asked = {"name": names, "from": "-24h", "step": "all", "group_by": "prompt_version"}
    answer = client.call("GET metrics", asked)
    for metric in answer["metrics"]:
        counted = {} if ":" in metric["name"] else {"n": None}  # how many is the figure itself
        points = {line["group"]["prompt_version"]: line["points"][-1] | counted for line in metric["series"]}
        if points:
            rows.append((_FIGURES[metric["name"]], *(interval(points.get(version)) for version in VERSIONS)))
    table("", ("", *(f"prompt {version}" for version in VERSIONS)), rows)
    reasons = "select cost_unknown_reason, count(*) from traces where cost_unknown_reason is not null group by 1"
    for reason, count in client.call("POST sql", {"query": reasons})["rows"]:
        click.echo(f"cost of {count} requests unknown: {reason}")
    before, after = VERSIONS
    sides = {"a": f"prompt:{before}", "b": f"prompt:{after}", "evaluator": "groundedness"}
    found = client.call("GET compare", sides)
    difference = interval(found["difference"])
    click.echo(f"\ngroundedness, {after} against {before}: {found['verdict']}, difference {difference}")
    for mark in client.metrics("quality:groundedness", from_="-24h")["markers"]:
        click.echo(f"{mark['text']} began {mark['t'][11:16]} UTC")
    for flip in found["flips"][:1]:
        click.echo(f"worst flip: {flip['query']!r}  {flip['a']:.2f} -> {flip['b']:.2f}  ({flip['explanation_b']})")


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def run(program: tuple[str, ...]) -> int:
    """Run a Python program and record it: `ragpulse run app.py`, `ragpulse run uvicorn app:app`.

    The program needs no change. Needs only the extra [instrument]; RAGPULSE_* and OTEL_* variables configure it.
    """
    return subprocess.run([sys.executable, "-m", "ragpulse_collector", "run", *program], check=False).returncode
