"""A model's folder: its configuration, the meaning of its labels, its files. ONNX and JSON only; nothing is fetched."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ragpulse_evaluators.errors import ConfigurationError, first_problem

Kind = Literal["tokens", "pairs"]
KINDS: Mapping[str, Kind] = {"ForTokenClassification": "tokens", "ForSequenceClassification": "pairs"}
"""Ending of the architecture → kind."""
MANIFEST = "ragpulse-model.json"
"""What `ragpulse models add` writes last: a folder of the models' home without it is half a download."""
DATA = "[_.]data*"
"""Pattern behind a graph's name: its weights, where they are files of their own."""
_NEEDED = {"config.json": "is it the folder of a model?", "tokenizer.json": "save the model's fast tokenizer there"}
LONGEST = 2048
"""Tokens of one window at most: memory and time grow with its square."""
_MAX_JSON = 64 * 2**20
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LENGTHS = "tokenizer_config.json"


class ModelConfig(BaseModel):
    """What is read of a model's `config.json`."""

    architectures: list[str] | None = None
    id2label: dict[int, str] | None = None
    model_type: str = ""
    max_position_embeddings: int | None = Field(None, ge=1)
    pad_token_id: int | None = None
    name: str = Field("", alias="_name_or_path")

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read it; raises `ConfigurationError`."""
        try:
            return cls.model_validate(read_json(folder / "config.json"))
        except ValidationError as error:
            raise ConfigurationError(f"{folder / 'config.json'} is damaged: {first_problem(error)}") from None

    @property
    def pad(self) -> int:
        """The id of padding."""
        return max(0, self.pad_token_id or 0)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What a model's files say about it."""

    name: str
    """As it was asked for: a folder or an id of the hub."""
    path: Path
    kind: Kind
    """Whether it labels tokens of the response or pairs of context and claim."""
    supported: tuple[bool, ...]
    """For each output whether it means that the contexts support the claim."""
    limit: int
    """Tokens that it reads at once."""
    pad: int
    template: str
    """The text that it reads, with `{context}`, `{question}`, `{claim}`; empty: context and claim as two texts."""
    graph: Path
    files: Mapping[str, int]
    """The files that count, with their bytes."""
    digest: str
    """12 hex of sha256 over configuration, tokenizer and graph."""


def models_home() -> Path:
    """Return the folder of added models: `RAGPULSE_MODELS`, else `ragpulse/models` in the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.environ.get("RAGPULSE_MODELS") or Path(data) / "ragpulse" / "models")


def place_of(model: str) -> Path:
    """Return the folder in which a model of the hub is added; raises `ConfigurationError` for what is no id."""
    if not _HUB_ID.fullmatch(model) or ".." in model:
        raise ConfigurationError(f"{model!r} is neither a folder nor an id such as ORGANISATION/MODEL")
    return models_home() / model.replace("/", "--")


def open_model(model: str) -> ModelFolder:
    """Read what a folder, or an added model of the hub, says; raises `ConfigurationError` with the fix."""
    if (folder := Path(model).expanduser()).is_dir():
        return read_folder(model, folder, manifest_of(folder) or {})
    place = place_of(model)
    add = f"ragpulse models add {model}"
    if not place.is_dir():
        raise ConfigurationError(f"the model {model} is not on this machine: {add}")
    if (manifest := manifest_of(place)) is None:
        raise ConfigurationError(f"the model {model} is half a download: run again {add}")
    return read_folder(model, place, manifest)


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Return what was noted when a model was added; None where nothing was."""
    return read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None


def read_folder(model: str, folder: Path, manifest: Mapping[str, Any]) -> ModelFolder:
    """Read a folder; `manifest` holds what was noted when it was added."""
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    graph, used = used_files(model, names, manifest.get("graph"))
    config, sizes = ModelConfig.read(folder), {name: (folder / name).stat().st_size for name in used}
    if manifest.get("files", sizes) != sizes:
        raise ConfigurationError(
            f"{model}: its files changed since it was added: run again ragpulse models add {model}"
        )
    kind, supported, template = meaning(model, config, manifest)
    return ModelFolder(
        name=model,
        path=folder,
        kind=kind,
        supported=supported,
        limit=_limit(config, folder),
        pad=config.pad,
        template=template,
        graph=folder / graph,
        files=sizes,
        digest=manifest.get("digest") or file_digest([folder / name for name in used]),
    )


def meaning(model: str, config: ModelConfig, noted: Mapping[str, Any]) -> tuple[Kind, tuple[bool, ...], str]:
    """Return kind, meaning of the labels, and template, by the configuration, the user, and what is known."""
    stated = known_facts(noted.get("id") or model, config.name) | dict(noted)
    return _kind(model, config), _meaning(model, config, stated.get("labels")), stated.get("template") or ""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model; raises `ConfigurationError` where it is damaged or huge."""
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ConfigurationError(f"{path} is larger than {_MAX_JSON >> 20} MB")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} is damaged: it holds no object")
    return value


def file_digest(files: Sequence[Path]) -> str:
    """12 hex of sha256 over names and bytes of files."""
    digests = [f"{file.name} {sha256_of(file)}" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:12]


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def used_files(model: str, names: Collection[str], chosen: str | None) -> tuple[str, list[str]]:
    """Return the graph's name and those of all used files of a folder or of a repository.

    The graph is the chosen one, else `model.onnx`, else the only one; raises `ConfigurationError`.
    """
    for name, hint in _NEEDED.items():
        if name not in names:
            raise ConfigurationError(f"{model}: there is no {name}: {hint}")
    graphs = sorted(name for name in names if name.endswith(".onnx"))
    if not graphs:
        export = f"optimum-cli export onnx --model {model} FOLDER, then ragpulse models add FOLDER"
        raise ConfigurationError(f"{model} has no ONNX graph: {export}")
    wanted = (chosen,) if chosen else ("model.onnx", "onnx/model.onnx", *(graphs if len(graphs) == 1 else ()))
    graph = next((name for name in wanted if name in graphs), None)
    if graph is None:
        choice = f"choose one with models add --file ({', '.join(graphs)})"
        raise ConfigurationError(f"{model} has no ONNX graph {chosen or 'model.onnx'}: {choice}")
    others = sorted(name for name in names if name == _LENGTHS or fnmatch(name, f"{graph}{DATA}"))
    return graph, [*_NEEDED, graph, *others]


def _kind(model: str, config: ModelConfig) -> Kind:
    names = config.architectures or []
    for ending, kind in KINDS.items():
        if any(name.endswith(ending) for name in names):
            return kind
    raise ConfigurationError(
        f"{model}: the architecture {', '.join(names) or 'is not named'} is not supported:"
        f" only models whose name ends in {' or '.join(KINDS)}"
    )


@cache
def known() -> dict[str, Any]:
    """Words of labels, and what the cards of known models say that their configuration does not."""
    text = (resources.files("ragpulse_evaluators.local") / "known.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def known_facts(*names: str) -> dict[str, Any]:
    """Return what is known of a model by its id."""
    return next((row for row in known()["models"] for name in names if fnmatch(name, row["match"])), {})


def _meaning(model: str, config: ModelConfig, chosen: Sequence[str] | None) -> tuple[bool, ...]:
    """Return for each output whether it means *supported*; a single output is a probability of it."""
    own = config.id2label or {0: "LABEL_0", 1: "LABEL_1"}  # a configuration leaves out two unnamed labels
    names = list(chosen) if chosen else [own[key] for key in sorted(own)]
    if len(names) == 1:
        return (True,)
    words = [re.sub(r"[\W_]+", "", name).lower() for name in names]
    supported = tuple(word in known()["supported"] for word in words)
    if not {*words} <= {*known()["supported"], *known()["unsupported"]} or len({*supported}) < 2:
        shown, fix = ", ".join(names), f"ragpulse models add {model} --labels supported,hallucinated"
        raise ConfigurationError(f"{model} has labels that do not tell what is supported ({shown}): {fix}")
    return supported


def _limit(config: ModelConfig, folder: Path) -> int:
    """Return how many tokens the model reads, by its tokenizer's and its own configuration."""
    settings = folder / _LENGTHS
    stated = read_json(settings).get("model_max_length") if settings.is_file() else None
    # RoBERTa counts positions from the padding on.
    beside = config.pad + 1 if "roberta" in config.model_type else 0
    found = (stated, (config.max_position_embeddings or LONGEST + beside) - beside)
    return int(min(LONGEST, *(value for value in (*found, LONGEST) if isinstance(value, int | float) and value > 0)))
