"""Names to evaluators: built from the families, extended by entry points, files and configuration."""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, UnknownEvaluator, nearest
from ragpulse_evaluators.evaluator import CostClass, Evaluator, Function, Scale
from ragpulse_evaluators.judges.protocol import Judge
from ragpulse_evaluators.judges.providers import as_judge

FAMILIES = ("judged", "text", "ranking", "structure", "grounding", "agents", "local", "aggregate")
"""Sub-packages, each with its `ENTRIES`."""
Params = Mapping[str, Any]
_ACCESS = ("api_base", "api_key")
_OTHER_NAMES = {
    "score_threshold": "threshold",
    "enforce_consensus": "consensus",
    "yaml_specs": "spec",
    "match_rule": "rule",
    "num_samples": "n",
    "scale": "span",
    "criteria": "criterion",
    "evaluation_steps": "steps",
    "model": "judge",
    "llm": "judge",
    "embed_model": "embedder",
}
"""Parameter names of other packages, and ours."""
_OFFERED = ("judge", "embedder", "language", "prompts")


_LATER = {"nfc": True}
"""Parameters that came after the first version with their defaults, which are no part of a version: series go on."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered evaluator: its factory, and the facts that a person needs before using it.

    Each family lists its entries in `ENTRIES: tuple[Entry, ...]`.
    """

    name: str
    factory: Callable[..., Evaluator]
    """Takes the parameters as keywords. One named `judge`, `embedder` or `resolve` is filled by the registry
    (`resolve(name, **params) -> Evaluator` for evaluators made of others)."""
    needs: tuple[str, ...]
    """Case fields without which the result is skipped, with the default parameters."""
    scale: Scale
    cost_class: CostClass = "free"
    source: str
    """Paper or project whose definition is followed."""
    description: str
    """One sentence a user understands."""
    example: str
    """A line of Python that evaluates to the evaluator, e.g. `get_evaluator("ndcg", k=5)`."""
    packages: tuple[str, ...] = ()
    """Packages the evaluator imports; where one is missing, it stays listed and is refused when it is configured."""
    own_process: bool = False
    """Whether the collector runs it in a process of its own: it loads hostile files, or takes much time."""
    install: str = ""
    """The distribution that brings those packages, e.g. `ragpulse[text]`."""
    replaces: bool = False
    """Whether it takes the place of another evaluator of its name."""
    former: Mapping[str, str] = field(default_factory=dict)
    """Label of an earlier version to how its scores meant something else; said where a limit may stem from it."""

    @classmethod
    def of(
        cls,
        kind: type[Evaluator] | Evaluator,
        *,
        source: str,
        description: str | None = None,
        options: str = "",
        **fields: Any,
    ) -> Entry:
        """The entry of an evaluator class, or of a sample that stands for what `factory` makes.

        Name, needs, scale and cost are its own. The description is by default the first line of the docstring;
        `options` are the parameters in the example.
        """
        described: dict[str, Any] = {
            "name": kind.name,
            "factory": kind,
            "needs": tuple(field for field in Case.model_fields if field in kind.needs),
            "scale": kind.scale,
            "cost_class": kind.cost_class,
            "replaces": kind.replaces,
            "source": source,
            "description": ((kind.__doc__ if description is None else description) or "").strip().partition("\n")[0],
            "example": f'get_evaluator("{kind.name}"{options and ", "}{options})',
        }
        return cls(**described | fields)

    @classmethod
    def of_function(
        cls,
        function: Callable[..., Any],
        *,
        source: str,
        description: str,
        options: str = "",
        scale: Scale | None = None,
        threshold: bool = False,
        needs: Iterable[str] | None = None,
    ) -> Entry:
        """The entry of a function of case fields: its keyword-only parameters are those of the evaluator.

        `threshold` says whether the evaluator also takes a threshold, `needs` what a function of the whole case needs.
        """
        defaults = {p.name: p.default for p in _signature(function) if p.kind is p.KEYWORD_ONLY}
        types = {name: kind for name, kind in parameters_of(function).items() if name in defaults}

        @wraps(function)
        def factory(**params: Any) -> Evaluator:
            given = {name: value for name, value in (defaults | params).items() if _LATER.get(name) != value}
            return Function(function, scale=scale or Scale(), needs=needs, **given)

        set_keywords(factory, types | ({"threshold": float | None} if threshold else {}), defaults)
        return cls.of(factory(), factory=factory, source=source, description=description, options=options)

    def check_packages(self) -> None:
        """Raise `ConfigurationError` with the install command where a package is missing."""
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise ConfigurationError(f"{self.name} needs the package {missing[0]}: pip install '{self.install}'")


class Registry:
    """A mapping of names to entries and ready evaluators; `with_` returns an extended registry."""

    def __init__(self, entries: Iterable[Entry], instances: Iterable[Evaluator] = ()) -> None:
        self._entries = _unique(entries)
        self._instances = {instance.name: instance for instance in instances}

    def with_(self, *items: Evaluator | Entry, replace: bool = False) -> Registry:
        """A registry with these added.

        Raises `ConfigurationError` for a name that exists, unless `replace` or the evaluator's `replaces` says so.
        """
        known: dict[str, Evaluator | Entry] = {**self._entries, **self._instances}
        for item in items:
            if item.name in known and not (replace or item.replaces):
                raise ConfigurationError(
                    f"there is an evaluator {item.name!r} already: give it another name, or replaces=True to replace it"
                )
            known[item.name] = item
        instances = [item for item in known.values() if isinstance(item, Evaluator)]
        return Registry([item for item in known.values() if isinstance(item, Entry)], instances)

    def changed(self, change: Callable[[Entry], Entry]) -> Registry:
        """A registry with each entry changed."""
        return Registry(map(change, self._entries.values()), self._instances.values())

    @property
    def names(self) -> list[str]:
        """Every known name, sorted."""
        return sorted({*self._entries, *self._instances})

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry, sorted by name."""
        return tuple(self._entries[name] for name in sorted(self._entries))

    def get(self, name: str, **params: Any) -> Evaluator:
        """Make the evaluator called `name` (or `NAME@LABEL`, `NAME@HEX`).

        `judge`, `embedder`, `language` and `prompts` are passed to evaluators that take them, so that one call serves a
        mixed list; any other unknown parameter raises `ConfigurationError`.
        """
        plain_name, _, version = name.partition("@")
        instance = self._instances.get(plain_name)
        evaluator = self._make(plain_name, params) if instance is None else _with_judge(instance, params)
        if version and evaluator.version.label != version and not evaluator.version.startswith(version):
            raise UnknownEvaluator(
                f"{plain_name} has version {evaluator.version} (label {evaluator.version.label}), not {version!r}"
            )
        return evaluator

    def accepts(self, name: str) -> list[str]:
        """Parameter names of an entry, sorted; empty for a ready evaluator."""
        return sorted(parameters_of(self._entries[name].factory)) if name in self._entries else []

    def _make(self, name: str, params: Params) -> Evaluator:
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownEvaluator(f"no evaluator is called {name!r}{nearest(name, self.names)}")
        entry.check_packages()
        accepted = parameters_of(entry.factory)
        offered = _with_ready_judge(params)
        taken = {key: value for key, value in offered.items() if key in accepted or key not in _OFFERED}
        if unknown := [key for key in taken if key not in accepted]:
            ours = _OTHER_NAMES.get(unknown[0])
            hint = f"; it is called {ours!r} here" if ours in accepted else nearest(unknown[0], accepted)
            raise ConfigurationError(f"{name} has no parameter {unknown[0]!r}{hint}")
        if "resolve" in accepted:
            shared = {key: value for key, value in offered.items() if key in _OFFERED}
            taken["resolve"] = lambda name, **params: self.get(name, **shared | params)
        if missing := sorted({*required_of(entry.factory)} - taken.keys()):
            raise ConfigurationError(f"{name} needs {missing[0]}=..., as in {entry.example}")
        _check_values(name, accepted, taken)
        try:
            evaluator = entry.factory(**taken)
        except ConfigurationError:
            raise
        except Exception as failure:  # the boundary: a user's constructor
            raise ConfigurationError(f"{name}: {type(failure).__name__}: {failure}") from failure
        _check_threshold(evaluator)
        return evaluator


def _with_judge(instance: Evaluator, params: Params) -> Evaluator:
    """The instance; a copy with the judge of the parameters where the instance needs one and has none."""
    options = _with_ready_judge(params)
    if unknown := sorted(set(options) - set(_OFFERED)):
        raise ConfigurationError(f"{instance.name} is an instance and takes no parameter {unknown[0]!r}")
    if not instance.wants_judge or instance.judge is not None or options.get("judge") is None:
        return instance
    copied = copy.copy(instance)
    copied.judge = options["judge"]
    return copied


def _with_ready_judge(params: Params) -> dict[str, Any]:
    """The parameters with `judge`, `api_base` and `api_key` made into one judge."""
    merged = dict(params)
    access = {key: merged.pop(key) for key in _ACCESS if merged.get(key) is not None}
    if isinstance(merged.get("judge"), str):
        merged["judge"] = as_judge(merged["judge"], **access)
    return {
        key: value for key, value in merged.items() if not (key in _OFFERED and value is None) and key not in _ACCESS
    }


def _unique(entries: Iterable[Entry]) -> dict[str, Entry]:
    by_name: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in by_name:
            raise ConfigurationError(f"two evaluators are called {entry.name!r}")
        by_name[entry.name] = entry
    return by_name


def _check_values(name: str, accepted: Params, params: Params) -> None:
    """Raise `ConfigurationError` for a value that its parameter's type does not allow; objects are not checked."""
    for key, value in params.items():
        if key in ("judge", "embedder"):  # whatever makes them says what is wrong
            continue
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(accepted[key], config=ConfigDict(arbitrary_types_allowed=True))
            adapter.validate_json(json.dumps(value), strict=True)
        except ValidationError as failure:
            raise ConfigurationError(f"{name}: {key}={value!r}: {failure.errors()[0]['msg']}") from None
        except (TypeError, PydanticUserError, SchemaError):  # an object, or a type that pydantic cannot read
            continue


def _check_threshold(evaluator: Evaluator) -> None:
    scale, threshold = evaluator.scale, evaluator.threshold
    if (
        threshold is None
        or scale.kind == "open"
        or scale.lo <= threshold <= (math.inf if scale.hi is None else scale.hi)
    ):
        return
    ends = f"{scale.lo:g}.." + ("" if scale.hi is None else f"{scale.hi:g}")
    raise ConfigurationError(f"{evaluator.name}: threshold={threshold:g} is outside the scale {ends}")


@cache
def parameters_of(factory: Any) -> Params:
    """Names and types of the keywords that a factory takes, through the constructors it inherits from."""
    if isinstance(factory, partial):
        return {name: kind for name, kind in parameters_of(factory.func).items() if name not in factory.keywords}
    if not inspect.isclass(factory):
        return _keywords(factory)
    names: dict[str, Any] = {}
    for constructor in (vars(layer)["__init__"] for layer in factory.__mro__ if "__init__" in vars(layer)):
        names = _keywords(constructor) | names
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in _signature(constructor)):
            break
    return {name: kind for name, kind in names.items() if name != "self"}


def _keywords(function: Any) -> dict[str, Any]:
    try:
        types = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # a name that is imported for type checkers only; a callable object
        types = {}
    named = [p.name for p in _signature(function) if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return {name: types.get(name, Any) for name in named}


def set_keywords(factory: Any, types: Params, defaults: Params) -> None:
    """Give a factory that takes `**params` the keywords of these types; a default is None where none is known."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=defaults.get(name)) for name in types]
    factory.__annotations__, factory.__signature__ = dict(types), inspect.Signature(parameters)


def _signature(function: Any) -> Iterable[inspect.Parameter]:
    return inspect.signature(function).parameters.values()


def required_of(function: Any) -> list[str]:
    """Names of the parameters that a call must give."""
    named = [p for p in _signature(function) if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in named if p.default is p.empty]


@cache
def default_registry() -> Registry:
    """The built-in families and everything installed under the entry point group `ragpulse.evaluators`."""
    own = (entry for family in FAMILIES for entry in import_module(f"ragpulse_evaluators.{family}").ENTRIES)
    installed = [point.load() for point in entry_points(group="ragpulse.evaluators")]
    return Registry(own).with_(*_flat(installed))


def _flat(items: Iterable[Any]) -> list[Evaluator | Entry]:
    """Entry points may name an evaluator, an entry, or a tuple of them."""
    flat: list[Evaluator | Entry] = []
    for item in items:
        flat += [item] if isinstance(item, (Evaluator, Entry)) else list(item)
    return flat


def get_evaluator(
    name: str, *, judge: str | Judge | None = None, registry: Registry | None = None, **params: Any
) -> Evaluator:
    """Make a registered evaluator; parameters as the reference page lists them.

    Raises `UnknownEvaluator` or `ConfigurationError` with the nearest valid name; every parameter that the evaluator
    would ignore is refused, but for the judge.
    """
    used = registry or default_registry()
    accepted = used.accepts(name.partition("@")[0])
    offered = [key for key in _OFFERED if params.get(key) is not None and key not in accepted]
    if offered and accepted and "resolve" not in accepted:
        raise ConfigurationError(f"{name} has no parameter {offered[0]!r}; it would be ignored")
    return used.get(name, judge=judge, **params)


def list_evaluators(registry: Registry | None = None) -> list[str]:
    """Names of all evaluators, sorted."""
    return (registry or default_registry()).names
