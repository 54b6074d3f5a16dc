"""Evaluators from files and configuration are found; what cannot run is refused at the start with its reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.app import Collector
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.cli import run
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import Settings, SettingsError

OWN = '''
from ragpulse_evaluators import evaluator

@evaluator(version="2")
def has_metres(response: str) -> bool:
    """Does the answer give metres?"""
    return "metres" in response
'''


def configured(folder: Path, text: str) -> Settings:
    """Settings from a file in a folder that also holds `own.py`."""
    (folder / "own.py").write_text(OWN)
    path = folder / "ragpulse.toml"
    path.write_text(text)
    return load_settings(path)


def test_files_are_found_beside_the_configuration(tmp_path: Path) -> None:
    """A file named in ragpulse.toml is read from the folder of ragpulse.toml."""
    settings = configured(tmp_path, '[evaluators]\nfiles = ["own.py"]\n')
    assert Catalog(settings).resolve("has_metres").name == "has_metres"


def test_code_of_the_configuration_is_told_with_its_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever starts in a folder of somebody else's reads which file runs which code; a YAML file runs none."""
    settings = configured(tmp_path, '[evaluators]\nfiles = ["own.py", "tone.yaml"]\nmodules = ["json"]\n')
    assert settings.path() == tmp_path / "ragpulse.toml"
    assert settings.code() == [str(tmp_path / "own.py"), "module json"]
    Catalog(configured(tmp_path, '[evaluators]\nfiles = ["own.py"]\n')).resolve("has_metres")
    expected = f"{tmp_path / 'ragpulse.toml'} runs Python code in this process: {tmp_path / 'own.py'}"
    assert caplog.messages == [expected]


def test_no_code_is_told_where_none_is_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Defaults, and what the command line itself names."""
    (tmp_path / "own.py").write_text(OWN)
    Catalog(loads=[str(tmp_path / "own.py")]).resolve("has_metres")
    assert Settings().code() == []
    assert caplog.messages == []


def test_a_configured_evaluator_goes_by_its_own_name(tmp_path: Path) -> None:
    """`[[evaluator]]` makes a registered evaluator with fixed parameters."""
    settings = configured(tmp_path, '[[evaluator]]\nname = "short"\nuse = "regex"\npattern = "^.{1,9}$"\n')
    assert Catalog(settings).resolve("short").name == "short"


OWN_JUDGE = '[[evaluator]]\nname = "second"\nuse = "faithfulness"\njudge = "http://127.0.0.1:9/v1#large"\n'


@pytest.mark.parametrize("configuration", ["", '[judge]\nmodel = "http://127.0.0.1:8/v1#small"\n'])
def test_an_evaluator_may_have_a_judge_of_its_own(tmp_path: Path, configuration: str) -> None:
    """It is asked instead of the judge of `[judge]`; a replay that names another judge asks that."""
    catalog = Catalog(configured(tmp_path, configuration + OWN_JUDGE))
    assert str(catalog.resolve("second").judge_id).startswith("large ")
    assert str(catalog.resolve("second", judge="http://127.0.0.1:7/v1#other").judge_id).startswith("other ")
    assert str(catalog.unrecorded.resolve("second").judge_id).startswith("large ")
    assert (catalog.resolve("faithfulness").judge is None) == (not configuration)


@pytest.mark.parametrize(
    ("evaluator", "told"), [("groundednes", "did you mean 'groundedness'"), ("faithfulness", "needs a judge")]
)
def test_a_rule_that_cannot_run_is_refused_at_the_start(tmp_path: Path, evaluator: str, told: str) -> None:
    """An unknown evaluator is named with the nearest one, a judge that is missing with the fix."""
    settings = configured(tmp_path, f'[[rule]]\nname = "r"\nevaluators = ["{evaluator}"]\nrate = 1.0\n')
    settings = settings.with_options("collector", {"db": str(tmp_path / "x.duckdb"), "port": 0})
    with pytest.raises(SettingsError, match=told):
        Collector(settings).start()


def test_every_evaluator_is_described() -> None:
    """The list that pages and command line show has a sentence and a cost class for each."""
    for entry in Catalog().describe():
        assert entry.description, entry.name
        assert entry.cost_class, entry.name


WRONG = {
    "file": (
        '[evaluators]\nfiles = ["own.py", "onw.py"]\n',
        "ragpulse.toml:2: {folder}/onw.py is no file; did you mean 'own.py'",
    ),
    "code": ('\n[evaluators]\nfiles = ["broken.py"]\n', "ragpulse.toml:3: {folder}/broken.py:2: ModuleNotFoundError"),
    "module": (
        '[evaluators]\nmodules = ["jsno"]\n',
        "ragpulse.toml:2: there is no module 'jsno'; did you mean 'json'?",
    ),
    "use": (
        '[[evaluator]]\nname = "a"\nuse = "guidlines"\n',
        "evaluator 'a': no evaluator is called 'guidlines'; did you",
    ),
    "parameter": (
        '[[evaluator]]\nname = "a"\nuse = "refusal"\n\n[[evaluator]]\nname = "b"\nuse = "regex"\npatern = "x"\n',
        "ragpulse.toml:5: evaluator 'b': regex has no parameter 'patern'; did you mean 'pattern'?",
    ),
    "needless judge": (
        '[[evaluator]]\nname = "a"\nuse = "refusal"\njudge = "http://127.0.0.1:9/v1#m"\n',
        "ragpulse.toml:1: evaluator 'a': refusal asks no judge",
    ),
    "rule": (
        '[[rule]]\nname = "r"\nrate = 1.0\nevaluators = ["groundednes"]\n',
        "ragpulse.toml:4: rule 'r': no evaluator is called 'groundednes'; did you mean 'groundedness'?",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_refuses_the_start(tmp_path: Path, name: str) -> None:
    """One wrong file, module, parameter or name: line and nearest name, whether or not a rule asks for it."""
    text, told = WRONG[name]
    (tmp_path / "broken.py").write_text("x = 1\nimport no_such_module\n")
    settings = configured(tmp_path, text).with_options("collector", {"db": str(tmp_path / "x.duckdb"), "port": 0})
    with pytest.raises(SettingsError, match=re.escape(told.format(folder=tmp_path))):
        Collector(settings).start()


def test_the_command_lists_what_is_configured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ragpulse evaluators` reads ./ragpulse.toml, and says what is wrong with it."""
    named = '[[evaluator]]\nname = "short"\nuse = "regex"\npattern = "^.$"\n'
    configured(tmp_path, f'[evaluators]\nfiles = ["own.py"]\n\n{named}')
    monkeypatch.chdir(tmp_path)
    assert run(["evaluators", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert (listed["has_metres"]["version"], len(listed["has_metres"]["source_digest"])) == ("2", 12)
    assert (listed["short"]["needs"], listed["refusal"]["source_digest"]) == (["response"], None)
    configured(tmp_path, WRONG["module"][0])
    assert run(["evaluators"]) == 1
    assert "did you mean 'json'?" in capsys.readouterr().err


def test_a_file_may_be_loaded_again_and_a_taken_name_is_refused(tmp_path: Path) -> None:
    """A request may name a file that was loaded at the start; a file or entry that takes a built-in's name says so."""
    path = tmp_path / "own.py"
    path.write_text("from ragpulse_evaluators import evaluator\n@evaluator\ndef own(response):\n    return 1.0\n")
    catalog = Catalog(loads=[str(path)])
    assert catalog.resolve("own", loads=[str(path)]).name == "own"
    path.write_text(path.read_text().replace("own", "rouge"))
    with pytest.raises(SettingsError, match="there is an evaluator 'rouge' already"):
        Catalog(loads=[str(path)]).resolve("rouge")
    entry: dict[str, Any] = {"name": "rouge", "use": "match", "rule": "include"}
    with pytest.raises(SettingsError, match="already"):
        Catalog(Settings.model_validate({"evaluator": [entry]})).resolve("rouge")
    replacing = Settings.model_validate({"evaluator": [{**entry, "replaces": True}]})
    assert Catalog(replacing).resolve("rouge").params["rule"] == "include"
