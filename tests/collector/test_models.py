"""`ragpulse models`: a hub on loopback, an exported folder, and what is refused; each bad input is one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from local_models import pairs, tagger
from loopback_hub import SHA, LoopbackHub

from ragpulse_collector.cli import run
from ragpulse_evaluators import get_evaluator

CHUNK = 10 * 2**20
"""What the hub's client writes at once; a download goes on from there."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model as a repository of the hub has it: the graph in a folder, other weights beside it."""
    folder = tagger(tmp_path / "model")
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    for name in ("pytorch_model.bin", "modeling_tiny.py", "model.safetensors"):
        (folder / name).write_bytes(b"not to be fetched")
    return folder


@pytest.fixture
def hub(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """The hub, and an empty home of models."""
    served = LoopbackHub({"org/tiny": model})
    monkeypatch.setenv("RAGPULSE_MODELS", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", served.url)
    template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield served
    served.close()


def home(tmp_path: Path) -> list[str]:
    """The files of the added models, without the client's own."""
    paths = (path.relative_to(tmp_path / "home") for path in (tmp_path / "home").rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if ".cache" not in path.parts)


@pytest.mark.usefixtures("hub")
def test_a_model_is_added_listed_checked_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Size, licence and revision are shown first; only the files that are used are fetched."""
    assert run(["models", "add", "org/tiny"]) == 0
    shown = capsys.readouterr().out
    assert f"MB, licence: mit, revision {SHA}" in shown.splitlines()[0]
    assert 'model = "org/tiny"' in shown
    names = ("config.json", "onnx/model.onnx", "ragpulse-model.json", "revision.txt", "tokenizer.json")
    assert home(tmp_path) == [f"org--tiny/{name}" for name in (*names, "tokenizer_config.json")]
    assert run(["models", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["model"], row["state"], row["licence"], row["revision"]) == ("org/tiny", "ready", "mit", SHA)
    assert row["digest"] in shown
    assert run(["models", "check", "org/tiny", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accuracy"] == pytest.approx(
        (report["sensitivity"]["estimate"] + report["specificity"]["estimate"]) / 2, abs=0.001
    )
    assert report["verdict"].startswith("no better than guessing")
    assert report["answers_per_minute"] == pytest.approx(60_000 / report["ms_per_answer"], rel=0.05)
    assert run(["models", "remove", "org/tiny"]) == 0
    assert home(tmp_path) == []


def test_nothing_is_fetched_while_scoring(hub: LoopbackHub) -> None:
    """An added model needs no hub; one that is not added is refused without a request."""
    assert run(["models", "add", "org/tiny"]) == 0
    before = len(hub.asked)
    get_evaluator("groundedness_model", model="org/tiny")
    with pytest.raises(ValueError, match="ragpulse models add org/other"):
        get_evaluator("groundedness_model", model="org/other")
    assert len(hub.asked) == before


def test_a_download_goes_on_where_it_broke_off(hub: LoopbackHub, model: Path) -> None:
    """The client asks for the rest, and the digest is that of the whole."""
    (model / "onnx" / "model.onnx.data").write_bytes(os.urandom(CHUNK * 2 + 5000))
    hub.cut = CHUNK + 1000
    assert run(["models", "add", "org/tiny"]) == 0
    first, second = hub.fetched("model.onnx.data")
    assert first is None
    assert second == f"bytes={CHUNK}-"
    one = get_evaluator("groundedness_model", model="org/tiny").version
    assert run(["models", "remove", "org/tiny"]) == 0
    assert run(["models", "add", "org/tiny"]) == 0
    assert get_evaluator("groundedness_model", model="org/tiny").version == one


def test_a_second_run_goes_on_where_the_first_one_ended(hub: LoopbackHub, model: Path) -> None:
    """The hub dies within a file: `add` ends with an error; run again, it asks for the rest alone."""
    (model / "onnx" / "model.onnx_data").write_bytes(os.urandom(CHUNK * 2 + 5000))
    hub.cut, hub.dies = CHUNK + 1000, True
    assert run(["models", "add", "org/tiny"]) == 1
    hub.status = None
    assert run(["models", "add", "org/tiny"]) == 0
    assert hub.fetched("model.onnx_data")[-1] == f"bytes={CHUNK}-"
    assert hub.fetched("config.json") == [None]
    assert hub.fetched("model.onnx") == [None]


def test_what_arrives_damaged_is_thrown_away(
    hub: LoopbackHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part that belongs to other bytes: the digest of the hub tells, and the next run fetches the whole."""
    hub.gone_after = "config.json"
    assert run(["models", "add", "org/tiny"]) == 1
    hub.gone_after = hub.status = None
    (tmp_path / "home/org--tiny/onnx").mkdir()
    (tmp_path / "home/org--tiny/onnx/model.onnx.part").write_bytes(b"other bytes")
    assert run(["models", "add", "org/tiny"]) == 1
    assert "model.onnx was damaged on the way: run the command again" in capsys.readouterr().err
    assert run(["models", "add", "org/tiny"]) == 0


@pytest.mark.parametrize("name", ["onnx/model.onnx_data/../../../../outside", "/onnx/model.onnx_data", "../model.onnx"])
def test_no_file_is_written_outside_the_folder(hub: LoopbackHub, tmp_path: Path, name: str) -> None:
    """A hub that lists names with dots or from the root: they are no files of the model."""
    (tmp_path / "outside").write_text("mine")
    hub.hostile = [{"rfilename": name, "size": 4}]
    assert run(["models", "add", "org/tiny"]) == 0
    assert (tmp_path / "outside").read_text() == "mine"
    assert len(home(tmp_path)) == 6
    assert run(["models", "add", "org/tiny", "--file", name]) == 1
    assert not [path for _, path, _ in hub.asked if ".." in path]


def test_another_revision_begins_anew(hub: LoopbackHub, tmp_path: Path) -> None:
    """Nothing of the files of another revision is kept."""
    assert run(["models", "add", "org/tiny"]) == 0
    (tmp_path / "home/org--tiny/revision.txt").write_text("of last week")
    assert run(["models", "add", "org/tiny"]) == 0
    assert len(hub.fetched("config.json")) == 2
    assert run(["models", "add", "org/tiny"]) == 0
    assert len(hub.fetched("config.json")) == 2


def test_half_a_download_is_called_that_and_is_finished(
    hub: LoopbackHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub goes away after the first files; what arrived is not fetched again."""
    hub.gone_after = "tokenizer.json"
    assert run(["models", "add", "org/tiny"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert run(["models", "list"]) == 0
    assert "half a download" in capsys.readouterr().out
    with pytest.raises(ValueError, match="half a download: run again ragpulse models add org/tiny"):
        get_evaluator("groundedness_model", model="org/tiny")
    hub.gone_after = hub.status = None
    assert run(["models", "add", "org/tiny"]) == 0
    assert len(hub.fetched("config.json")) == 1
    assert home(tmp_path)


def test_files_that_change_after_adding_are_noticed(hub: LoopbackHub, tmp_path: Path) -> None:
    """A file of another size: the digest of `add` would be a lie."""
    assert run(["models", "add", "org/tiny"]) == 0
    with (tmp_path / "home" / "org--tiny" / "onnx" / "model.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="changed since it was added"):
        get_evaluator("groundedness_model", model="org/tiny")
    assert hub.asked


@pytest.mark.usefixtures("hub")
def test_what_an_exported_folder_does_not_say_is_noted_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--labels` and `--template` are part of the version, which is the same wherever the folder is."""
    folder = pairs(tmp_path / "exported", labels=None)
    assert run(["models", "add", str(folder)]) == 1
    assert "--labels supported,hallucinated" in capsys.readouterr().err
    options = ["--labels", "supported,unsupported", "--template", "{context} {claim}"]
    assert run(["models", "add", str(folder), *options]) == 0
    assert f'model = "{folder}"' in capsys.readouterr().out
    versions = [get_evaluator("groundedness_model", model=str(folder)).version]
    assert run(["models", "add", str(folder), *options[:2]]) == 0
    versions.append(get_evaluator("groundedness_model", model=str(folder)).version)
    assert len(set(versions)) == 2
    spaced = folder.rename(tmp_path / "my model..v2 ü")
    assert get_evaluator("groundedness_model", model=str(spaced)).version == versions[1]
    assert run(["models", "add", str(spaced), *options]) == 0
    assert get_evaluator("groundedness_model", model=str(spaced)).version == versions[0]


@pytest.mark.usefixtures("hub")
def test_the_only_graph_needs_no_choice(model: Path) -> None:
    """Of the hub as of a folder, whatever its name."""
    (model / "onnx" / "model.onnx").rename(model / "onnx" / "model_int8.onnx")
    assert run(["models", "add", "org/tiny"]) == 0
    assert get_evaluator("groundedness_model", model="org/tiny").version


def _without(name: str) -> Callable[[Path], Any]:
    return lambda model: (model / name).unlink()


def _config(**values: Any) -> Callable[[Path], Any]:
    return lambda model: (model / "config.json").write_text(json.dumps(values))


def _quantized(model: Path) -> None:
    (model / "onnx" / "model.onnx").rename(model / "onnx" / "model_int8.onnx")
    (model / "onnx" / "model_fp16.onnx").write_bytes((model / "onnx" / "model_int8.onnx").read_bytes())


BAD: dict[str, tuple[list[str], Callable[[Path], Any] | None, str]] = {
    "unknown": (["org/none"], None, "org/none was not fetched (RepositoryNotFoundError)"),
    "unknown revision": (["org/tiny", "--revision", "v9"], None, "RevisionNotFoundError"),
    "no id": (["tiny"], None, "is neither a folder nor an id such as ORGANISATION/MODEL"),
    "outside": (["../../none"], None, "is neither a folder nor an id"),
    "no graph": (["org/tiny"], _without("onnx/model.onnx"), "has no ONNX graph: optimum-cli export onnx"),
    "another graph": (
        ["org/tiny"],
        _quantized,
        "choose one with models add --file (onnx/model_fp16.onnx, onnx/model_int8.onnx)",
    ),
    "unknown graph": (["org/tiny", "--file", "x.onnx"], _quantized, "has no ONNX graph x.onnx: choose one"),
    "a graph that is not there": (["org/tiny", "--file", "x.onnx"], None, "has no ONNX graph x.onnx: choose one"),
    "generation": (["org/tiny"], _config(architectures=["LlamaForCausalLM"]), "LlamaForCausalLM is not supported"),
    "unnamed": (
        ["org/tiny"],
        _config(architectures=["XForTokenClassification"]),
        "has labels that do not tell what is supported (LABEL_0, LABEL_1)",
    ),
    "no tokenizer": (["org/tiny"], _without("tokenizer.json"), "there is no tokenizer.json"),
    "other labels": (["org/tiny", "--labels", "good,bad"], None, "has labels that do not tell what is supported"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_model_is_one_line(hub: LoopbackHub, model: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before its weights are fetched, with exit 1 and the fix."""
    arguments, change, expected = BAD[kind]
    if change:
        change(model)
    assert run(["models", "add", *arguments]) == 1
    error = capsys.readouterr().err.strip()
    assert expected in error
    assert len(error.splitlines()) == 1
    assert not hub.fetched("model.onnx")


@pytest.mark.parametrize("command", ["check", "remove"])
def test_what_was_not_added_cannot_be_used(hub: LoopbackHub, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the command that adds it."""
    assert run(["models", command, "org/tiny"]) == 1
    assert "ragpulse models add org/tiny" in capsys.readouterr().err
    assert not hub.asked


def test_without_the_hubs_client_the_extra_is_named(hub: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    """`pip install 'ragpulse[local]'`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", None)
        assert run(["models", "add", "org/tiny"]) == 1
    assert "pip install 'ragpulse[local]'" in capsys.readouterr().err
    assert not hub.asked


def test_the_endpoint_of_the_environment_is_asked(hub: LoopbackHub, tmp_path: Path) -> None:
    """`HF_ENDPOINT`, as of every program that uses the hub's client: the console script itself."""
    own = {"HF_ENDPOINT": hub.url, "RAGPULSE_MODELS": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-m", "ragpulse_collector", "models", "add", "org/tiny"]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "org--tiny/ragpulse-model.json" in home(tmp_path)
