"""A wrong parameter is refused in the same words over HTTP, by the client, on the command line and over MCP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import Collector
from ragpulse_collector.cli import cli, run
from ragpulse_collector.cli.asked import OfOperation
from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.interface import Signature, signatures

pytest.importorskip("mcp")

from mcp import Client as Assistant

from ragpulse_collector.mcp_server import BEGIN, END, server

Bad = Mapping[str, Any]
COMMANDS = {one.signature.name: name for name, one in cli.commands.items() if isinstance(one, OfOperation)}
NOT_THERE = [
    (f"GET {name}", kind) for name in ("compare", "metrics", "monitors/preview") for kind in ("missing", "doubled")
]
"""Mistakes that a command cannot make: its arguments have no names, so the last one is missing."""
OMITTED = {"GET gaps": {"dataset"}, "GET monitors/preview": {"tz"}}
"""Parameters that are no options, or whose option means something else."""
HUGE = 10**30
NEEDED = {"half_width": "0.1", "query": "select 1", "condition": "< 1", "evaluators": "refusal"}
"""Values for what an operation needs beside the wrong parameter; others are a name."""


def needed(signature: Signature) -> dict[str, Any]:
    """What the operation needs, all of it right in form."""
    return {name: "1" * 32 if name == "trace_id" else NEEDED.get(name, "requests") for name in signature.required}


def wrong(signature: Signature) -> Iterator[tuple[str, Bad]]:
    """Yield what is wrong and the parameters: unknown, misspelt, missing, doubled, huge, wrongly typed."""
    good = needed(signature)
    in_path = re.findall(r"\{(\w+)\}", signature.name)
    yield "unknown", good | {"bogus": "1"}
    for name in good.keys() - in_path:
        yield "missing", {key: value for key, value in good.items() if key != name}
    for name, schema in signature.parameters.items():
        kind = schema.get("type")
        if kind in ("boolean", "object"):
            yield f"{kind} typed", good | {name: "banana"}
        if name in in_path or kind in ("boolean", "array", "object") or "anyOf" in schema:
            continue
        yield "misspelt", good | {f"{name}s": "1"}
        yield "doubled", good | {name: ["1d", "2d"]}
        if kind in ("integer", "number"):
            yield "typed", good | {name: "banana"}
        if kind == "integer":
            yield "huge", good | {name: str(HUGE)}
        if "minimum" in schema:
            yield "bounds", good | {name: str(schema["minimum"] - 1)}
        if "enum" in schema:
            yield "choice", good | {name: "banana" * 50}


def over_http(client: Client, signature: Signature, bad: Bad) -> str:
    """The sentence of the answer, from the socket."""
    address, params = signature.request(bad)
    method, path = address.split(" ", 1)
    query = f"?{urlencode(params, doseq=True)}" if method == "GET" else ""
    try:
        client.request(method, f"/api/v1/{path}{query}", body=None if method == "GET" else dict(params))
    except ClientError as error:
        return f"{error}" if error.status == 400 else f"{error.status}: {error}"
    return "accepted"


def by_method(client: Client, signature: Signature, bad: Bad) -> str:
    """The sentence of the client's method, which is named as the function."""
    own = {"metrics", "sql"}  # methods of the client with parameters of their own
    try:
        client.ask(signature.name, bad) if signature.function in own else getattr(client, signature.function)(**bad)
    except ClientError as error:
        return str(error)
    return "accepted"


def by_command(client: Client, signature: Signature, bad: Bad, capsys: pytest.CaptureFixture[str]) -> str:
    """The line of the command, which exits 2."""
    command = cli.commands[COMMANDS[signature.name]]
    options = {one.name: one.opts[-1] for one in command.params if one.opts[-1].startswith("-")}
    words, given = [COMMANDS[signature.name], "--url", client.url], []
    for name, value in bad.items():
        for one in value if isinstance(value, list) else [value]:
            if name in {one.name for one in command.params} - options.keys():
                given.append(one)
            else:
                words += [options.get(name, f"--{name.replace('_', '-')}"), one]
    capsys.readouterr()
    code, printed = run([*words, *given]), capsys.readouterr()
    assert code in (0, 2), printed.err
    return printed.err.strip().removeprefix("ragpulse: ") if code else "accepted"


@pytest.mark.anyio
async def test_the_words_are_the_same_on_four_surfaces(
    collector: Callable[..., Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every operation that reads, every kind of mistake; what a surface does not have is left out."""
    client = connect(collector().url)
    differing, seen = [], {"http": 0, "client": 0, "command": 0, "mcp": 0}
    async with Assistant(server(client)) as assistant:
        for signature in signatures().values():
            for kind, bad in wrong(signature):
                said = {"http": over_http(client, signature, bad), "client": by_method(client, signature, bad)}
                has_it = (signature.name, kind) not in NOT_THERE and kind != "boolean typed"
                has_it &= not bad.keys() & OMITTED.get(signature.name, set())
                if has_it and signature.name in COMMANDS:
                    said["command"] = by_command(client, signature, bad, capsys)
                if signature.tools:
                    result = await assistant.call_tool(signature.tools[0].name, dict(bad))
                    too_long = "ask for less" in result.content[0].text
                    said["mcp"] = result.content[0].text if result.is_error and not too_long else "accepted"
                for surface in said:
                    seen[surface] += 1
                if len(set(said.values())) != 1 or ("accepted" in said.values() and kind != "huge"):
                    differing.append((signature.name, kind, bad, said))
    assert not differing, "\n".join(map(str, differing[:20]))
    assert min(seen.values()) > 100, seen


def test_every_operation_refuses_a_name_that_it_does_not_have(collector: Callable[..., Collector]) -> None:
    """Those that write too, before anything is written; the nearest name is proposed."""
    running = collector()
    client, told = connect(running.url), {}
    paths = json.loads(client.request("GET", "/openapi.json"))["paths"]
    for path, methods in paths.items():
        for method in methods:
            place = re.sub(r"\{\w+\}", "1" * 32, path.removeprefix("/api/v1/"))
            with pytest.raises(ClientError) as refused:
                client.call(f"{method.upper()} {place}", {"bogus": 1})
            told[method, path] = (refused.value.status, str(refused.value), [one.name for one in refused.value.errors])
    assert {(status, names[-1:] == ["bogus"]) for status, _, names in told.values()} == {(400, True)}, told
    assert all("unknown parameter 'bogus'" in sentence for _, sentence, _ in told.values())


@pytest.mark.anyio
async def test_values_mean_the_same_on_four_surfaces(
    collector: Callable[..., Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    """A list, an object, a flag, an age and a count choose the same traces everywhere."""
    running = collector()
    for number, tenant in enumerate(("acme", "acme", "other")):
        send(running.url, rag_trace(number, **{"metadata": json.dumps({"tenant": tenant})}))
    client = connect(running.url)
    until(client, "select 1 from traces", 3)
    for chosen, options, expected in (
        ({"metadata": {"tenant": ["acme"]}}, ["--metadata", "tenant=acme"], 2),
        ({"metadata": {"tenant": "other"}, "prompt_version": ["v7", "v8"]},
         ["--metadata", "tenant=other", "--prompt-version", "v7", "--prompt-version", "v8"], 1),
        ({"error": False, "since": "1h", "limit": 2}, ["--no-error", "--since", "1h", "--limit", "2"], 2),
        ({"error": True}, ["--error"], 0),
        ({"since": "1m", "to": "-59s"}, ["--since", "1m", "--to", "-59s"], 0),
    ):  # fmt: skip
        async with Assistant(server(client)) as assistant:
            told = (await assistant.call_tool("search_traces", dict(chosen))).content[0].text
        assert run(["traces", *options, "--json", "--url", client.url]) == 0
        answers = [
            client.trace_list(**chosen),
            json.loads(told.removeprefix(BEGIN).removesuffix(END)),
            json.loads(capsys.readouterr().out),
        ]
        assert [len(one["traces"]) for one in answers] == [expected] * 3, chosen
