"""The evaluators of this installation: built in, loaded from files and modules, configured in ragpulse.toml."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ragpulse_collector.configuration import place
from ragpulse_collector.settings import Settings, SettingsError

if TYPE_CHECKING:
    from ragpulse_evaluators import Evaluator, Judge
    from ragpulse_evaluators.registry import Entry, Registry

_log = logging.getLogger("ragpulse.collector")
Wrap = Callable[["Judge"], "Judge"]


class Catalog:
    """Names to ready evaluators. The evaluator package is imported when the first name is asked for, not before."""

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
        """`priced` and then `wrap` go around each judge; `unrecorded` keeps `priced` alone.

        `isolate` runs evaluators of loaded files and modules in processes of their own.
        """
        self._settings = settings or Settings()
        self.judge_model = judge or self._settings.judge.model
        folder = Path(self._settings.source).parent if self._settings.source else Path()
        self._files = tuple(str(folder / file) for file in self._settings.evaluators.files)
        self._loads = tuple(loads)
        self._priced, self._wrap = priced, wrap
        self._isolate = isolate
        self._judge_given = judge
        self._own_judges = {spec.name: spec.judge for spec in self._settings.evaluator if spec.judge}
        self._made: dict[tuple[str, str | None, str | None, tuple[str, ...]], Evaluator] = {}
        self._lock = Lock()

    @cached_property
    def registry(self) -> Registry:
        """Every name this installation knows; raises SettingsError naming line, file or entry that is wrong."""
        from ragpulse_evaluators.loading import configure_evaluators, load_module
        from ragpulse_evaluators.registry import default_registry

        self._warn_of_code()
        settings = self._settings
        with self._placed("evaluators", "files"):
            registry = self._loaded(default_registry(), self._files)
        with self._placed():
            registry = self._loaded(registry, self._loads)
        with self._placed("evaluators", "modules"):
            for module in settings.evaluators.modules:
                registry = registry.with_(*self._guarded(load_module(module), ("module", module)))
        for number, spec in enumerate(settings.evaluator):
            with self._placed("evaluator", number):
                made = {"name": spec.name, "use": spec.use, **spec.params}
                judge = self.judge if spec.judge is None else self._judge(spec.judge)
                registry = configure_evaluators([made], registry=registry, judge=judge)
                if spec.judge and "judge" not in registry.accepts(spec.use):
                    raise ValueError(f"evaluator {spec.name!r}: {spec.use} asks no judge")
        return registry

    def check(self) -> None:
        """Make every configured and loaded evaluator; raises SettingsError for the first that is wrong."""
        evaluators = self._settings.evaluators
        if evaluators.files or evaluators.modules or self._settings.evaluator or self._loads:
            _ = self.registry

    @contextmanager
    def _placed(self, *location: str | int) -> Iterator[None]:
        """Name the line of the configuration in front of what is wrong."""
        try:
            yield
        except (ValueError, LookupError) as error:
            where = place(self._settings, *location) if location else ""
            raise SettingsError(f"{where}{': ' if where else ''}{error.args[0]}") from error

    @cached_property
    def judge(self) -> Judge | None:
        """The configured judge, recorded where a wrapper was given; None where no model is configured."""
        return None if self.judge_model is None else self._judge(self.judge_model)

    @property
    def judges(self) -> list[Judge]:
        """The judge of `[judge]` and those of single evaluators."""
        own = [self._judge(model) for model in dict.fromkeys(self._own_judges.values())]
        return own if self.judge is None else [self.judge, *own]

    @cached_property
    def unrecorded(self) -> Catalog:
        """The same evaluators with judges that are really asked each time, whatever is recorded."""
        own: dict[str, Any] = {"judge": self._judge_given, "loads": self._loads, "isolate": self._isolate}
        return Catalog(self._settings, priced=self._priced, **own)

    def resolve(
        self, name: str, *, judge: str | None = None, prompts: str | None = None, loads: Sequence[str] = ()
    ) -> Evaluator:
        """Return the evaluator called so, made once per judge model, prompt folder and loaded files.

        `judge` None stands for the evaluator's own, else for that of `[judge]`. Raises ValueError or LookupError with
        the nearest name.
        """
        judge = judge or self._own_judges.get(name.partition("@")[0])
        wanted = (name, judge, prompts, tuple(loads))
        with self._lock:
            if wanted not in self._made:
                chosen = self.judge if judge is None else self._judge(judge)
                self._made[wanted] = self._loaded(self.registry, loads).get(name, judge=chosen, prompts=prompts)
            return self._made[wanted]

    def _warn_of_code(self) -> None:
        """Log which Python code the configuration file runs in this process: the folder may be somebody else's."""
        code = self._settings.code()
        if code:
            _log.warning("%s runs Python code in this process: %s", self._settings.path(), ", ".join(code))

    def _loaded(self, registry: Registry, paths: Iterable[str]) -> Registry:
        for path in paths:
            from ragpulse_evaluators.loading import load

            registry = registry.with_(*self._guarded(load(path), ("file", str(Path(path).resolve()))))
        return registry

    def _guarded(self, found: Sequence[Evaluator | Entry], source: tuple[str, str]) -> Sequence[Evaluator | Entry]:
        if not self._isolate:
            return found
        from ragpulse_evaluators.isolated import Limits, isolated

        configured = self._settings.evaluators
        limits = Limits(
            time_s=configured.time_limit_s, memory_mb=configured.memory_limit_mb, processes=configured.processes
        )
        return [isolated(item, source, limits) for item in found]

    def _judge(self, model: str) -> Judge:
        from ragpulse_evaluators.judges.litellm import as_judge

        configured = self._settings.judge
        api_base = configured.api_base if model == self.judge_model else None
        judge = as_judge(model, api_base=api_base, max_tokens=configured.max_tokens)
        assert judge is not None, "a model was named"
        for wrap in filter(None, (self._priced, self._wrap)):
            judge = wrap(judge)
        return judge

    def online(self, name: str) -> Evaluator:
        """Return an evaluator that can run in the background here; raises ValueError where it lacks its judge."""
        evaluator = self.resolve(name)
        if evaluator.wants_judge and evaluator.judge is None:
            raise ValueError(f"{name} needs a judge: name one with --judge or [judge] model")
        return evaluator

    def describe(self) -> list[dict[str, Any]]:
        """Return what a person should know of each evaluator, by name; version null where it needs parameters."""
        return [self._described(name) for name in self.registry.names]

    def _described(self, name: str) -> dict[str, Any]:
        entry = next((entry for entry in self.registry.entries if entry.name == name), None)
        made = None
        with suppress(ValueError, LookupError):  # needs parameters (guideline, regex) or a judge: listed all the same
            made = self.resolve(name)
        known = entry or made
        scale = known.scale if known else None
        doc = (made.__doc__ or "").partition("\n")[0] if made else ""
        return {
            "name": name,
            "version": made.version if made else None,
            "source_digest": made.source_digest if made else None,
            "needs": list(entry.needs) if entry else sorted(made.needs) if made else [],
            "scale": asdict(scale) | {"threshold": getattr(made, "threshold", None)} if scale else None,
            "cost_class": known.cost_class if known else None,
            "source": entry.source if entry else "this installation",
            "description": entry.description if entry else doc,
        }
