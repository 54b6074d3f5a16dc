"""Users' evaluators: from a Python file, a YAML file, or `[[evaluator]]` entries of a configuration."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ragpulse_evaluators.errors import ConfigurationError, nearest
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.judged.custom_yaml import CustomYaml, read_spec
from ragpulse_evaluators.judges.protocol import Judge
from ragpulse_evaluators.registry import Entry, Registry, default_registry, set_keywords

_SUFFIXES = (".py", ".yaml", ".yml")


def load(path: str | Path) -> list[Evaluator | Entry]:
    """Evaluators of a `.py` file (instances, `@evaluator` functions, subclasses) or of a `.yaml` file.

    Hand them to `Registry.with_`. Raises `ConfigurationError` naming the file for anything that cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES]
        raise ConfigurationError(f"{path} is no file{nearest(path.name, siblings)}")
    if path.suffix not in _SUFFIXES:
        raise ConfigurationError(f"{path}: evaluators are loaded from .py, .yaml or .yml files")
    return _evaluators_of(_import(path), path) if path.suffix == ".py" else [_from_yaml(path)]


def load_module(name: str) -> list[Evaluator | Entry]:
    """Evaluators of an importable module, as of a file; raises `ConfigurationError` naming it."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise _load_error(name, missing) from missing
        package = sys.modules.get(missing.name.rpartition(".")[0])
        siblings = [module.name for module in pkgutil.iter_modules(package and package.__path__)]
        hint = nearest(missing.name.rpartition(".")[2], siblings)
        raise ConfigurationError(f"there is no module {missing.name!r}{hint}") from None
    except (Exception, SystemExit) as failure:  # the boundary: a user's module may do anything at import
        raise _load_error(name, failure) from failure
    return _evaluators_of(module, Path(name))


def _evaluators_of(module: ModuleType, path: Path) -> list[Evaluator | Entry]:
    values = {id(value): value for name, value in vars(module).items() if not name.startswith("_")}.values()
    items = [item for value in values if (item := _as_item(value, module, path)) is not None]
    if not items:
        raise ConfigurationError(f"{path} holds no evaluator: decorate a function with @evaluator")
    ready = {item.name for item in items if isinstance(item, Evaluator)}  # an instance stands for its class
    return [item for item in items if isinstance(item, Evaluator) or item.name not in ready]


def _import(path: Path) -> ModuleType:
    name = f"ragpulse_loaded_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py path always has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the file look their module up by name
    try:
        with _beside(path.resolve().parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:  # the boundary: a user's module may do anything at import
        del sys.modules[name]
        raise _load_error(path, failure) from failure
    return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Find modules in the folder first while a file is imported, and last afterwards: a function may import them late.

    A module of the same name beside another file is forgotten: each file has its own.
    """
    for name, module in list(sys.modules.items()):
        home = Path(getattr(module, "__file__", None) or "").parent
        if home != folder and str(home) in _FOLDERS and (folder / f"{name}.py").is_file():
            del sys.modules[name]
    _FOLDERS.add(str(folder))
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


_FOLDERS: set[str] = set()
"""The folders of loaded files."""


def _load_error(path_or_name: str | Path, failure: BaseException) -> ConfigurationError:
    """The error of a file or module, with the innermost of its lines that failed."""
    file = str(Path(path_or_name).absolute())
    if isinstance(failure, SyntaxError):
        line = failure.lineno if failure.filename == file else None
    else:
        frames = traceback.extract_tb(failure.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
    return ConfigurationError(f"{path_or_name}{f':{line}' if line else ''}: {type(failure).__name__}: {failure}")


def _as_item(value: Any, module: ModuleType, path: Path) -> Evaluator | Entry | None:
    if isinstance(value, (Evaluator, Entry)):
        return value
    defined_here = inspect.isclass(value) and value.__module__ == module.__name__
    if not defined_here or not issubclass(value, Evaluator) or inspect.isabstract(value) or not value.name:
        return None
    return Entry.of(value, source=path.name)


def _from_yaml(path: Path) -> Entry:
    spec = read_spec(path)
    values = {"name": path.stem} | spec.model_dump(exclude_none=True)
    factory = partial(CustomYaml, spec=values)
    return Entry.of(factory(), factory=factory, source=path.name, description=spec.description)


def configure_evaluators(
    specs: Iterable[Mapping[str, Any]], *, registry: Registry | None = None, judge: str | Judge | None = None
) -> Registry:
    """A registry that also knows the configured evaluators: each spec has `name`, `use` and the parameters of `use`.

    Each is made once here: a wrong one raises `ConfigurationError` at once, with the nearest name.
    """
    registry = registry or default_registry()
    for spec in specs:
        params = dict(spec)
        name, use, replaces = params.pop("name", None), params.pop("use", None), params.pop("replaces", False)
        if not isinstance(name, str) or not isinstance(use, str):
            raise ConfigurationError(f"a configured evaluator has a name and a use: {dict(spec)}")
        registry = registry.with_(_configured(registry, name, use, params, judge), replace=replaces)
    return registry


def _configured(registry: Registry, name: str, use: str, params: Mapping[str, Any], judge: str | Judge | None) -> Entry:
    def factory(**options: Any) -> Evaluator:
        evaluator = registry.get(use, **{"judge": judge, **params, **options})
        evaluator.name = name
        return evaluator

    if use in registry.names and not registry.accepts(use):
        raise ConfigurationError(f"evaluator {name!r}: {use!r} is ready made; use it by its own name")
    try:
        sample = factory()
    except ConfigurationError as error:
        raise ConfigurationError(f"evaluator {name!r}: {error}") from None
    set_keywords(factory, dict.fromkeys(registry.accepts(use), Any), {})
    values = ", ".join(f"{key}={value!r}" for key, value in params.items())
    description = f"{use} with {values}" if values else use
    return Entry.of(sample, factory=factory, source="configuration", description=description)
