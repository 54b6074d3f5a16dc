"""Adds models to this machine: fetches a hub's model once, or notes what an exported folder does not say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragpulse_evaluators.errors import ConfigurationError, excerpt
from ragpulse_evaluators.local.folder import (
    MANIFEST,
    ModelConfig,
    ModelFolder,
    manifest_of,
    meaning,
    models_home,
    open_model,
    place_of,
    read_folder,
    sha256_of,
    used_files,
)

Say = Callable[[str], None]


def add_model(model: str, *, say: Say, revision: str | None = None, **chosen: Any) -> ModelFolder:
    """Note `chosen` in a folder, or add a model of the hub; an interrupted download goes on where it broke off.

    `chosen` are `graph`, `labels` and `template` where the model's files do not tell. Raises `ConfigurationError`.
    """
    chosen = {key: value for key, value in chosen.items() if value}
    if (folder := Path(model).expanduser()).is_dir():
        return _note(str(folder.resolve()), folder, chosen)
    place = place_of(model)
    with _reported(model):
        return _fetch(model, place, revision, chosen, say)


def _fetch(model: str, place: Path, revision: str | None, chosen: dict[str, Any], say: Say) -> ModelFolder:
    from huggingface_hub import HfApi, hf_hub_url

    info = HfApi().model_info(model, revision=revision, files_metadata=True, timeout=20)
    siblings = info.siblings or ()
    files = {file.rfilename: file for file in siblings if _is_inside(file.rfilename)}
    graph, wanted = used_files(model, files, chosen.get("graph"))
    licence = getattr(info.card_data, "license", None) or "no licence stated"
    size = sum(files[name].size or 0 for name in wanted)
    say(f"{model}: {size / 1e6:,.1f} MB, licence: {licence}, revision {info.sha}")
    _prepare(place, str(info.sha))
    for name in wanted:
        url, lfs = hf_hub_url(model, name, revision=info.sha), getattr(files[name], "lfs", None)
        _download(url, place / name, files[name].size or 0, getattr(lfs, "sha256", None))
        if name == "config.json":  # what cannot be used is refused before its weights are fetched
            meaning(model, ModelConfig.read(place), {"id": model, **chosen})
    facts = {"revision": info.sha, "licence": licence, "graph": graph}
    return _note(model, place, chosen | facts)


def _is_inside(name: str) -> bool:
    """Whether a name that the hub states stays below the model's folder."""
    return not name.startswith("/") and ".." not in Path(name).parts


def _prepare(place: Path, revision: str) -> None:
    """Keep what an earlier run fetched of this revision; of another one nothing is kept."""
    mark = place / "revision.txt"
    if not mark.is_file() or mark.read_text() != revision:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        mark.write_text(revision)
    (place / MANIFEST).unlink(missing_ok=True)


def _download(url: str, target: Path, size: int, sha256: str | None) -> None:
    """Fetch a file, or the rest of it: the hub's client itself begins anew with each run."""
    from huggingface_hub import get_token
    from huggingface_hub.file_download import http_get

    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with part.open("ab") as file:
        begun = file.tell()
        if begun < size:
            headers = {"authorization": f"Bearer {token}"} if (token := get_token()) else {}
            http_get(url, file, resume_size=begun, headers=headers, expected_size=size, displayed_filename=target.name)
    if part.stat().st_size != size or sha256 not in (None, sha256_of(part)):
        part.unlink()
        raise ConfigurationError(f"{target.name} was damaged on the way: run the command again")
    part.replace(target)


@contextmanager
def _reported(model: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line."""
    try:
        yield
    except ImportError as missing:
        raise ConfigurationError(f"models are fetched by {missing.name}: pip install 'ragpulse[local]'") from None
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: the client raises classes of its own and of its transport
        reason = excerpt(str(error), 200)
        raise ConfigurationError(f"{model} was not fetched ({type(error).__name__}): {reason}") from None


def _note(model: str, place: Path, facts: Mapping[str, Any]) -> ModelFolder:
    """Write the manifest, last: with it the model is whole."""
    found = read_folder(model, place, {"id": model, **facts})
    manifest = {"id": model, **facts, "files": found.files, "digest": found.digest}
    partial = place / f"{MANIFEST}.part"
    partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    partial.replace(place / MANIFEST)
    return found


def added_models() -> list[tuple[str, dict[str, Any]]]:
    """Return each added model with its manifest; an empty one is half a download."""
    places = sorted(path for path in models_home().glob("*--*") if path.is_dir())
    return [(place.name.replace("--", "/", 1), manifest_of(place) or {}) for place in places]


def remove_model(model: str) -> None:
    """Delete an added model; raises `ConfigurationError` where there is none."""
    if not place_of(model).is_dir():
        open_model(model)  # says that it is not there
    shutil.rmtree(place_of(model))
