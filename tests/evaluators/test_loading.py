"""Evaluators from Python files, YAML files and configuration."""

import re
import sys
from pathlib import Path

import pytest

from ragpulse_evaluators import Case, ScriptedJudge, default_registry, evaluate, evaluate_sync, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.loading import configure_evaluators, load, load_module

MODULE = '''
from __future__ import annotations
from dataclasses import dataclass
from ragpulse_evaluators import Case, Evaluator, evaluator
from ragpulse_evaluators.judged.criteria import Rubric

@dataclass
class Limit:
    size: int

@evaluator(version="3")
def short(response: str) -> bool:
    return len(response) < Limit(5).size

class Shouting(Evaluator):
    """Is the response in capitals?"""
    name = "shouting"
    needs = frozenset({"response"})
    async def run(self, case: Case) -> bool:
        return case.response.isupper()

class Polite(Rubric):
    """Is the response polite?"""
    name = "polite"
    def __init__(self, **options):
        super().__init__(criterion="Politeness", **options)
'''


async def test_functions_and_subclasses_of_a_file_join_the_registry(tmp_path: Path) -> None:
    """Instances, plain subclasses and judged ones are found; the judged one is given the judge."""
    path = tmp_path / "my_evals.py"
    path.write_text(MODULE, encoding="utf-8")
    registry = default_registry().with_(*load(path))
    judge = ScriptedJudge(['{"score": 0.5}'])
    found = await evaluate(
        [Case(query="q", response="OK")], ["short", "shouting", "polite"], judge=judge, registry=registry
    )
    assert {name: results[0].score for name, results in found.items()} == {"short": 1, "shouting": 1, "polite": 0.5}
    assert found["short"][0].version == "3"
    assert "Politeness" in found["polite"][0].calls[0].prompt


async def test_a_yaml_file_is_an_evaluator_by_its_name(tmp_path: Path) -> None:
    """tone.yaml is `tone`; its needs follow from its placeholders."""
    path = tmp_path / "tone.yaml"
    path.write_text("prompt: 'Tone of {completion}?'\nchoice_strings: [dry, warm]\nchoice_scores: {dry: 0, warm: 1}\n")
    registry = default_registry().with_(*load(path))
    tone = get_evaluator("tone", judge=ScriptedJudge(["warm"]), registry=registry)
    result = await tone(Case(response="Hello!"))
    assert (result.evaluator, result.score, set(tone.needs)) == ("tone", 1.0, {"response"})


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.py", "x = 1", "holds no evaluator"),
        ("b.py", "\nimport no_such_module", "b.py:2: ModuleNotFoundError"),
        ("c.py", "x = 1\n\ndef (", "c.py:3: SyntaxError"),
        ("f.py", "def f():\n    return 1 / 0\nf()", "f.py:2: ZeroDivisionError"),
        ("d.yaml", "promt: x", "did you mean 'prompt'"),
        (
            "g.py",
            "from ragpulse_evaluators import evaluator\n@evaluator\ndef f(respones):\n    return 1",
            r"g\.py:\d.*did you mean 'response'",
        ),
        ("e.txt", "", r"\.py, \.yaml"),
    ],
)
def test_a_wrong_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, match: str
) -> None:
    """Whatever is wrong with a file, the message says which and why."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=match):
        load(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=match):
        load(name)
    with pytest.raises(ConfigurationError, match="is no file"):
        load(tmp_path / "absent.py")


@pytest.mark.parametrize(
    ("module", "match"),
    [
        ("own_evalutaors", "there is no module 'own_evalutaors'; did you mean 'own_evaluators'?"),
        ("own_evaluators.judgd", "there is no module 'own_evaluators.judgd'; did you mean 'judged'?"),
        ("own_evaluators.broken", "own_evaluators.broken: ModuleNotFoundError: No module named 'no_such'"),
        ("own_evaluators", "own_evaluators holds no evaluator"),
    ],
)
def test_a_wrong_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, match: str) -> None:
    """The nearest module is named; what a module lacks itself is said of it."""
    for loaded in [name for name in sys.modules if name.startswith("own_evaluators")]:
        monkeypatch.delitem(sys.modules, loaded)
    package = tmp_path / "own_evaluators"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "judged.py").write_text(MODULE)
    (package / "broken.py").write_text("import no_such")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=re.escape(match)):
        load_module(module)
    with pytest.raises(ConfigurationError, match=r"is no file; did you mean 'judged\.py'"):
        load(package / "jugded.py")
    assert {item.name for item in load_module("own_evaluators.judged")} == {"short", "shouting", "polite"}


async def test_configured_evaluators_are_usable_by_name() -> None:
    """`use` with parameters under a new name; one may build on another; the version is that of its parameters."""
    specs = [
        {"name": "tone", "use": "guideline", "guidelines": "Polite, no promises about dates."},
        {"name": "year", "use": "regex", "pattern": r"\d{4}"},
    ]
    registry = configure_evaluators(specs)
    tone = registry.get("tone", judge=ScriptedJudge(["NO\nIt promises a date."]))
    result = await tone(Case(query="q", response="On Monday."))
    assert (result.evaluator, result.score) == ("tone", 0.0)
    assert "no promises about dates" in result.calls[0].prompt
    assert tone.version == get_evaluator("guideline", guidelines="Polite, no promises about dates.").version
    assert (await registry.get("year")(Case(response="1889"))).score == 1.0
    assert "tone" in registry.names


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"name": "x", "use": "guidelines"}, "'x'.*did you mean 'guideline'"),
        ({"name": "x", "use": "guideline", "guidline": "y"}, "did you mean 'guidelines'"),
        ({"use": "guideline"}, "a name and a use"),
        ({"name": "faithfulness", "use": "guideline"}, "there is an evaluator 'faithfulness' already"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(spec: dict[str, str], match: str) -> None:
    """Unknown names and parameters are answered with the nearest."""
    with pytest.raises(ConfigurationError, match=match):
        configure_evaluators([spec])


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    """As a script does, also late; two folders may have modules of one name."""
    for folder, number in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helpers_beside.py").write_text(f"NUMBER = {number}\n")
        (tmp_path / folder / "own.py").write_text(
            "from ragpulse_evaluators import evaluator\nfrom helpers_beside import NUMBER\n"
            f"@evaluator(name='{folder}')\ndef own(response):\n    import late_beside_{folder}\n"
            f"    return float(NUMBER + late_beside_{folder}.NUMBER)\n"
        )
        (tmp_path / folder / f"late_beside_{folder}.py").write_text("NUMBER = 10\n")
    registry = default_registry().with_(*load(tmp_path / "one" / "own.py"), *load(tmp_path / "two" / "own.py"))
    found = evaluate_sync(Case(response="x"), ["one", "two"], registry=registry)
    assert [results[0].score for results in found.values()] == [11.0, 12.0]


OWN = """
from ragpulse_evaluators import Evaluator, evaluator, get_evaluator

_helper = get_evaluator("faithfulness")

@evaluator{flag}
def exact_match(response):
    return 0.25

same = exact_match
"""
CLASS = """
from ragpulse_evaluators import Evaluator

class Own(Evaluator):
    name = "exact_match"
    needs = frozenset({{"response"}})
    replaces = {flag}

    def run(self, case):
        return 0.25
"""


@pytest.mark.parametrize(("text", "no", "yes"), [(OWN, "", "(replaces=True)"), (CLASS, "False", "True")])
def test_a_name_that_exists_is_refused_or_replaced_when_asked(tmp_path: Path, text: str, no: str, yes: str) -> None:
    """A function that is called like a built-in evaluator never hides it in silence."""
    path = tmp_path / "own.py"
    path.write_text(text.format(flag=no))
    with pytest.raises(ConfigurationError, match="there is an evaluator 'exact_match' already"):
        default_registry().with_(*load(path))
    registry = default_registry().with_(*load(path), replace=True)
    (result,) = evaluate_sync(Case(response="x"), ["exact_match"], registry=registry)["exact_match"]
    assert result.score == 0.25
    path.write_text(text.format(flag=yes))
    registry = default_registry().with_(*load(path))
    (result,) = evaluate_sync(Case(response="x"), ["exact_match"], registry=registry)["exact_match"]
    assert result.score == 0.25


def test_a_configured_evaluator_replaces_when_asked() -> None:
    """`replaces` of an entry; its own `use` is the one that it replaces."""
    spec = {"name": "exact_match", "use": "regex", "pattern": "x", "replaces": True}
    assert configure_evaluators([spec]).get("exact_match").name == "exact_match"
    own = {"name": "match", "use": "match", "rule": "include", "replaces": True}
    assert configure_evaluators([own]).get("match").params["rule"] == "include"
