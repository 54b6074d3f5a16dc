"""The evaluators of this installation: built in, loaded from files and modules, configured in ragpulse.toml."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ragpulse_collector.configuration import source_line
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import JudgeModel, Settings, SettingsError

if TYPE_CHECKING:
    from ragpulse_evaluators import Evaluator, Judge, Scale
    from ragpulse_evaluators.registry import Entry, Registry

_log = logging.getLogger("ragpulse.collector")
Wrap = Callable[["Judge"], "Judge"]


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The scale of an evaluator's scores: as it declares it, with the limit of its verdict."""

    lo: float
    hi: float | None
    reverse: bool
    kind: str
    threshold: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An evaluator of this installation."""

    name: str
    version: str | None
    """None where it needs parameters."""
    source_digest: str | None
    needs: tuple[str, ...]
    scale: ScoreRange | None
    cost_class: str | None
    source: str
    description: str


class CpuLoad(NamedTuple):
    """What one evaluator uses of the CPU."""

    seconds: float
    """CPU seconds of a case."""
    share: float
    """CPU seconds a second that it may use."""


class CheckLoad(NamedTuple):
    """The work of the checks that share a process."""

    each_s: float
    """Seconds from one result to the next, while others wait."""
    waiting: int
    """Cases that wait for sure ..."""
    more: bool
    """... and whether there may be others."""


class Catalog:
    """Evaluators by name. The evaluator package is imported at the first look-up."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        judge: str | None = None,
        loads: Iterable[str] = (),
        priced: Wrap | None = None,
        wrap: Wrap | None = None,
        isolate: bool = False,
    ) -> None:
        """`priced` and then `wrap` wrap each judge; in `unrecorded` only `priced` does.

        `isolate` runs evaluators of loaded files and modules in processes of their own.
        """
        self._settings = settings or Settings()
        self._default_judge = self._settings.judge_of(self._settings.judge if judge is None else judge)
        folder = Path(self._settings.source).parent if self._settings.source else Path()
        self._files = tuple(str(folder / file) for file in self._settings.evaluators.files)
        self._loads = tuple(loads)
        self._priced, self._wrap = priced, wrap
        self._isolate = isolate
        self._judge_option = judge
        specs = self._settings.evaluator
        self._own_judges = {spec.name: self._settings.judge_of(spec.judge) for spec in specs if spec.judge}
        self._resolved: dict[tuple[str, str | None, str | None, tuple[str, ...], str], Evaluator] = {}
        self._judges: dict[JudgeModel, Judge] = {}
        self._lock = Lock()

    @cached_property
    def registry(self) -> Registry:
        """All evaluators of this installation; raises SettingsError naming line, file or entry of a mistake."""
        from ragpulse_evaluators.loading import configure_evaluators, load_module
        from ragpulse_evaluators.registry import default_registry

        self._warn_of_code()
        settings = self._settings
        with self._named_line("evaluators", "files"):
            registry = self._loaded(default_registry().changed(self._placed), self._files)
        with self._named_line():
            registry = self._loaded(registry, self._loads)
        with self._named_line("evaluators", "modules"):
            for module in settings.evaluators.modules:
                registry = registry.with_(*self._guarded(load_module(module), ("module", module)))
        for number, spec in enumerate(settings.evaluator):
            with self._named_line("evaluator", number):
                fields = {"name": spec.name, "use": spec.use, "replaces": spec.replaces, **spec.params}
                judge = self.judge if spec.judge is None else self._judge(self._own_judges[spec.name])
                registry = configure_evaluators([fields], registry=registry, judge=judge)
                if spec.judge and "judge" not in registry.accepts(spec.use):
                    raise Invalid(f"evaluator {spec.name!r}: {spec.use} asks no judge")
        return registry

    def check(self) -> None:
        """Make every configured judge and every configured or loaded evaluator; raises SettingsError for a mistake."""
        with self._named_line("judge", "model"):
            _ = self.judge
        if self._settings.lead:
            with self._named_line("lead"):
                self.resolve(self._settings.lead)
        evaluators = self._settings.evaluators
        if evaluators.files or evaluators.modules or self._settings.evaluator or self._loads:
            _ = self.registry

    @contextmanager
    def _named_line(self, *location: str | int) -> Iterator[None]:
        """Put the line of the configuration in front of an error."""
        try:
            yield
        except (ValueError, LookupError) as error:
            line = source_line(self._settings, *location) if location else ""
            raise SettingsError(f"{line}{': ' if line else ''}{error.args[0]}") from error

    @cached_property
    def judge(self) -> Judge | None:
        """The configured judge with its wrappers; None where no model is configured."""
        return None if self._default_judge.model is None else self._judge(self._default_judge)

    def judge_named(self, name: str | None) -> Judge:
        """Return the configured judge of a name or model, None: that of `[judge]`; raises Invalid."""
        chosen = self._default_judge if name is None else self._settings.judge_of(name)
        if chosen.model is None or chosen not in (self._default_judge, *self._own_judges.values()):
            named = "no judge is configured" if name is None else f"{name!r} is no configured judge"
            raise Invalid(f"{named}: name one with --judge or [judge] model in ragpulse.toml")
        return self._judge(chosen)

    @property
    def judges(self) -> list[Judge]:
        """The judge of `[judge]` and those of single evaluators."""
        own = [self._judge(judge) for judge in dict.fromkeys(self._own_judges.values())]
        return own if self.judge is None else [self.judge, *own]

    @cached_property
    def unrecorded(self) -> Catalog:
        """The same evaluators with judges that answer anew each time, without the recorded calls."""
        options: dict[str, Any] = {"judge": self._judge_option, "loads": self._loads, "isolate": self._isolate}
        return Catalog(self._settings, priced=self._priced, **options)

    def resolve(
        self,
        name: str,
        *,
        judge: str | None = None,
        prompts: str | None = None,
        loads: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> Evaluator:
        """Return the evaluator of a name, made once for each judge model, prompt folder, loaded files and parameters.

        `judge` None stands for the evaluator's own, else for that of `[judge]`. Raises Invalid with the nearest name.
        """
        key = (name, judge, prompts, tuple(loads), json.dumps(params))
        with self._lock:
            if key not in self._resolved:
                self._resolved[key] = self._made(name, judge, loads, {**(params or {}), "prompts": prompts})
            return self._resolved[key]

    def _made(self, name: str, judge: str | None, loads: Sequence[str], params: Mapping[str, Any]) -> Evaluator:
        from ragpulse_evaluators.errors import ConfigurationError

        own = self._own_judges.get(name.partition("@")[0])
        chosen = own if judge is None else self._settings.judge_of(judge)
        try:
            ready = self.judge if chosen is None else self._judge(chosen)
            there = {str(Path(path).resolve()) for path in (*self._files, *self._loads)}
            new = [path for path in loads if str(Path(path).resolve()) not in there]
            return self._loaded(self.registry, new).get(name, judge=ready, **params)
        except ConfigurationError as error:
            raise Invalid(error.args[0]) from error

    def _warn_of_code(self) -> None:
        """Log the Python code that the configuration file runs in this process: the folder may be somebody else's."""
        code = self._settings.code()
        if code:
            _log.warning("%s runs Python code in this process: %s", self._settings.path(), ", ".join(code))

    def _loaded(self, registry: Registry, paths: Iterable[str]) -> Registry:
        from ragpulse_evaluators.loading import load

        for path in paths:
            registry = registry.with_(*self._guarded(load(path), ("file", str(Path(path).resolve()))))
        return registry

    def _placed(self, entry: Entry) -> Entry:
        """Return a built-in evaluator so that it runs where it should: in a process of its own if it needs one."""
        if not entry.own_process:
            return entry
        (placed,) = self._guarded([entry], ("module", entry.factory.__module__))
        return cast("Entry", placed)

    def cpu_loads(self) -> dict[str, CpuLoad]:
        """Return what each evaluator with a share of the CPU uses, once a case of it was scored."""
        from ragpulse_evaluators.isolated import Isolated

        with self._lock:
            made = [evaluator for evaluator in self._resolved.values() if isinstance(evaluator, Isolated)]
        return {
            evaluator.name: CpuLoad(evaluator.pace.mean_s, evaluator.max_cpu_share)
            for evaluator in made
            if evaluator.pace.mean_s and evaluator.max_cpu_share
        }

    def _guarded(self, items: Sequence[Evaluator | Entry], source: tuple[str, str]) -> Sequence[Evaluator | Entry]:
        if not self._isolate:
            return items
        from ragpulse_evaluators.isolated import ProcessLimits, isolated

        configured = self._settings.evaluators
        limits = ProcessLimits(
            time_s=configured.time_limit_s, memory_mb=configured.memory_limit_mb, processes=configured.processes
        )
        return [isolated(item, source, limits) for item in items]

    def _judge(self, configured: JudgeModel) -> Judge:
        """Return the judge of these settings: one for all evaluators that ask it, so that they share its limits."""
        if configured not in self._judges:
            judge = self._wrapped(configured)
            place = getattr(judge, "place", "")
            for other in self._judges.values():
                if other.id == judge.id and (elsewhere := getattr(other, "place", "")) != place:
                    raise Invalid(
                        f"two judges are both named {configured.name or judge.id!r}, {elsewhere} and {place}:"
                        " they would share recorded calls; give each a name of its own"
                    )
            self._judges[configured] = judge
        return self._judges[configured]

    def _wrapped(self, configured: JudgeModel) -> Judge:
        from ragpulse_evaluators.judges.providers import as_judge

        judge = as_judge(configured.model, **configured.access)
        assert judge is not None, "a model was named"
        for wrap in filter(None, (self._priced, self._wrap)):
            judge = wrap(judge)
        return judge

    def online(self, name: str, **options: Any) -> Evaluator:
        """Return an evaluator that can run without a person here; raises Invalid where it lacks its judge."""
        evaluator = self.resolve(name, **options)
        if evaluator.wants_judge and evaluator.judge is None:
            raise Invalid(f"{name} needs a judge: name one with --judge or [judge] model in ragpulse.toml")
        return evaluator

    def describe(self) -> list[Description]:
        """Return a description of each evaluator, by name."""
        return [self._description(name) for name in self.registry.names]

    def _description(self, name: str) -> Description:
        entry = next((entry for entry in self.registry.entries if entry.name == name), None)
        evaluator = None
        with suppress(Invalid):  # it needs parameters (guideline, regex) or a judge
            evaluator = self.resolve(name)
        facts = entry or evaluator
        doc = (evaluator.__doc__ or "").partition("\n")[0] if evaluator else ""
        return Description(
            name=name,
            version=evaluator.version if evaluator else None,
            source_digest=evaluator.version.source if evaluator else None,
            needs=tuple(entry.needs) if entry else tuple(sorted(evaluator.needs)) if evaluator else (),
            scale=_scale(facts.scale, getattr(evaluator, "threshold", None)) if facts and facts.scale else None,
            cost_class=facts.cost_class if facts else None,
            source=entry.source if entry else "this installation",
            description=entry.description if entry else doc,
        )


def _scale(scale: Scale, threshold: float | None) -> ScoreRange:
    return ScoreRange(scale.lo, scale.hi, scale.reverse, scale.kind, threshold)
