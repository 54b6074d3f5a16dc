"""Which number leads: the configuration decides, and `lead` overrides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_units import Units, trace_id

from ragpulse_collector.app import Collector
from ragpulse_collector.app.wiring import BackgroundTasks
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import leading

JUDGED = {"name": "claims", "use": "faithfulness", "judge": "http://127.0.0.1:8080/v1#m"}
MODEL = {"name": "grounded", "use": "groundedness_model", "model": "org/tiny"}
TONE = {"name": "tone", "use": "guideline", "guidelines": "Polite."}


def rule(*evaluators: str, rate: float = 1.0, **also: Any) -> dict[str, Any]:
    """A rule."""
    return {"name": "-".join(evaluators), "evaluators": evaluators, "rate": rate, **also}


ROWS: list[tuple[str, list[dict[str, Any]], str]] = [
    ("nothing configured", [], "groundedness"),
    ("the built-in check", [rule("groundedness", "citation_check")], "groundedness"),
    ("a model beside it", [rule("groundedness", "grounded")], "grounded"),
    ("a model before a judge", [rule("grounded"), rule("faithfulness", rate=0.01)], "faithfulness"),
    ("a judge of one answer in a thousand", [rule("groundedness"), rule("claims", rate=0.001)], "claims"),
    ("the first of two judges", [rule("claims"), rule("faithfulness")], "claims"),
    ("a judge of tone reads no support", [rule("tone"), rule("grounded")], "grounded"),
    ("only a judge of tone", [rule("tone")], "groundedness"),
    ("a rule that is switched off", [rule("faithfulness", rate=0), rule("groundedness")], "groundedness"),
    ("a rule of a stratum", [rule("faithfulness", rate=0, strata=[{"where": "error", "rate": 0.1}])], "faithfulness"),
    ("statements", [rule("groundedness", "statement_faithfulness")], "statement_faithfulness"),
    ("a version", [rule("grounded@1a2b3c")], "grounded"),
]


@pytest.mark.parametrize(("kind", "rules", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_the_configuration_decides(kind: str, rules: list[dict[str, Any]], expected: str) -> None:
    """A judge's rule, else a model's, else the built-in check; `lead` wins over all."""
    settings = Settings.model_validate({"rule": rules, "evaluator": [JUDGED, MODEL, TONE]})
    assert leading(settings.rule, settings.evaluator, settings.lead) == expected, kind
    assert leading(settings.rule, settings.evaluator, "tone") == "tone"


@pytest.mark.parametrize(("written", "lead"), [({}, "groundedness"), ({"lead": "citation_check"}, "citation_check")])
def test_the_collector_answers_with_it(tmp_path: Path, written: dict[str, Any], lead: str) -> None:
    """Pages and assistants read it from the list of evaluators, charts from the overview."""
    settings = Settings.model_validate(written).with_options("collector", {"db": f"{tmp_path}/a.duckdb", "port": 0})
    collector = Collector(settings)
    try:
        table = {one.name: one for one in collector.components.operations}
        for name in ("GET evaluators", "GET overview"):
            assert table[name].answer_to(table[name].params.parse({})).lead == lead
    finally:
        collector.stop()


def test_the_setting_is_read_and_checked(tmp_path: Path) -> None:
    """From the file, above all tables, and from the environment; a name that nothing has is refused with its line."""
    path = tmp_path / "ragpulse.toml"
    path.write_text('# which number\nlead = "groundednes"\n[collector]\n')
    with pytest.raises(Invalid, match=r"ragpulse.toml:2: .*did you mean 'groundedness'"):
        Catalog(load_settings(path, {})).check()
    settings = load_settings(path, {"RAGPULSE_LEAD": "citation_check"})
    assert settings.lead == "citation_check"
    Catalog(settings).check()
    assert load_settings(None, {}).lead is None


def test_a_switch_is_a_marker(tmp_path: Path) -> None:
    """A collector that starts with another lead notes it once, for good; the first one and an equal one are none."""
    for lead in ("groundedness", "groundedness", "citation_check", "citation_check"):
        settings = Settings(lead=lead).with_options("collector", {"db": f"{tmp_path}/a.duckdb", "port": 0})
        collector = Collector(settings)
        try:
            BackgroundTasks(collector.store, settings.collector, collector.components, arrivals=int).note_lead()
            table = {one.name: one for one in collector.components.operations}
            metrics = table["GET metrics"]
            asked = {"name": "quality:groundedness", "from": "-1h", "step": "1h"}
            markers = metrics.answer_to(metrics.params.parse(asked)).markers
        finally:
            collector.stop()
        if lead == "groundedness":
            assert markers == []
    (marker,) = markers
    assert (marker.kind, marker.text.partition(" since ")[0]) == ("lead", "lead: citation_check")


def test_a_trace_names_what_leads(tmp_path: Path) -> None:
    """Its sentences, and what a person is asked about, are those of the evaluator that leads."""
    settings = Settings(lead="citation_check").with_options("collector", {"db": f"{tmp_path}/a.duckdb", "port": 0})
    collector = Collector(settings)
    try:
        units = Units(collector.store)
        units.unit(1)
        units.save()
        one = next(one for one in collector.components.operations if one.name == "GET traces/{trace_id}")
        assert one.answer_to(one.params.parse({"trace_id": trace_id(1), "spans": "brief"})).lead == "citation_check"
    finally:
        collector.stop()
