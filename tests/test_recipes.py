"""The recipes of CONTRIBUTING.md work as written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import ask
from jinja2 import ChoiceLoader, DictLoader
from spans import spans_of
from starlette.applications import Starlette
from stored_units import T0, Units, open_store

from ragpulse_collector.analysis import traffic
from ragpulse_collector.api.operations import Operations, Refusal
from ragpulse_collector.conventions.dialects import DIALECTS
from ragpulse_collector.conventions.mapper import Mapper
from ragpulse_collector.conventions.rules import RuleBook
from ragpulse_collector.otlp.wire import WireRows, WireScope
from ragpulse_dashboards.mount import environment, load_assets
from ragpulse_dashboards.site import Site
from ragpulse_evaluators import Case, evaluate_sync
from ragpulse_evaluators.registry import Registry

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEMPLATE = "{% extends layout %}{% block title %}Greeting{% endblock %}{% block content %}{{ greeting }}{% endblock %}"


def recipe(title: str) -> dict[str, Any]:
    """Run the code of one recipe; return its names."""
    (code,) = re.findall(rf"### {title}\n.*?```python\n(.*?)```", TEXT, flags=re.S)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names


def test_a_dialect() -> None:
    """Its attributes become canonical columns, beside all other dialects."""
    rows = WireRows(WireScope({}))
    rows.add(b"t" * 16, b"s" * 8, None, "search", 1, 2, {"acme.step": "search", "acme.question": "Why?"})
    mapped = Mapper(RuleBook((*DIALECTS, recipe("A dialect")["RULES"]))).spans(rows.batch())
    assert [(span.kind, span.query) for span in spans_of(mapped.spans)] == [("retriever", "Why?")]


def test_an_evaluator() -> None:
    """It is registered under its name and scores."""
    made = Registry(recipe("An evaluator")["ENTRIES"]).get("ends_with_source")
    cases = [Case(response="Yes [1]."), Case(response="Yes.")]
    assert [result.passing for result in evaluate_sync(cases, [made])["ends_with_source"]] == [True, False]


def test_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series has it."""
    monkeypatch.setattr(traffic, "NAMES", traffic.NAMES | recipe("A metric of the traffic")["METRIC"])
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(4):
        units.unit(number, model=f"m{number % 2}")
    units.save()
    asked = {"name": "models", "from": "-2h", "step": "4h"}
    (line,) = ask(store, "metrics", asked, clock=lambda: T0 + timedelta(hours=1))["series"]
    assert max(point["value"] or 0 for point in line["points"]) == 2
    store.close()


@pytest.mark.anyio
async def test_an_operation_and_its_page() -> None:
    """The operation refuses what it does not know; the page asks it."""
    operations = Operations(recipe("An operation")["greeting"].operations)
    assert await operations.call("GET greeting", {"name": "Ann"}) == {"greeting": "Hello Ann"}
    with pytest.raises(Refusal, match="nam"):
        await operations.call("GET greeting", {"nam": "Ann"})

    async def api(operation: str, params: Mapping[str, Any]) -> Any:
        return await operations.call(operation, params)

    templates = environment(load_assets())
    assert templates.loader is not None
    templates.loader = ChoiceLoader([DictLoader({"greeting.html": TEMPLATE}), templates.loader])
    site = Site(api=api, templates=templates)
    transport = httpx.ASGITransport(app=Starlette(routes=recipe("A page")["routes"](site)))
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        assert "Hello Ann" in (await client.get("/greeting?name=Ann")).text
