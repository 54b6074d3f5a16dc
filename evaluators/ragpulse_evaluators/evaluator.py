"""Turns a case into a result: the contract of every family, user function and adapter."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, overload

from ragpulse_evaluators.case import Case, clean
from ragpulse_evaluators.columns import COLUMNS
from ragpulse_evaluators.digest import Version, digest, source_digest
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, MissingField, Unreadable, nearest
from ragpulse_evaluators.judges.protocol import Judge, count_tokens, max_tokens_of
from ragpulse_evaluators.result import Estimate, EvaluationResult, JudgeCall, Outcome, Scale, Status, as_outcome

__all__ = ("CostClass", "Estimate", "Evaluator", "Function", "Scale", "as_outcome", "evaluator")

_SEVERAL, _INSTRUCTIONS, _REPLY = 4, 500, 300
"""Calls, and tokens of each beside the case, of a user's class that asks a judge."""
UserCode = Callable[..., Any]
"""A function or class that somebody wrote."""
CostClass = Literal["free", "embedding", "1 call", "k calls"]
"""The cost of one case: nothing, an embedding, one judge call, several."""


class Evaluator(ABC):
    """One metric. Subclass it, set `name` and `needs`, write `run`.

    `run` returns the plainest thing: a bool, a number, a label, an `Outcome`, or None for "not applicable". It may
    raise `MissingField` (skipped) and `Unreadable` (invalid); anything else becomes an `error` result.
    """

    name: str = ""
    needs: frozenset[str] = frozenset()
    """Case fields without which the result is `skipped`."""
    scale: Scale = Scale()
    label: str = "1"
    """Raised by hand when the meaning changes; part of the version (see `digest.Version`)."""
    parser: ClassVar[str] = "number"
    """Names the way replies are read; part of the version."""
    language: str | None = None
    cost_class: CostClass = "free"
    wants_judge: bool = False
    """True where nothing can be scored without `judge`."""
    replaces: bool = False
    """Whether it takes the place of another evaluator of its name; else a name that exists is refused."""
    takes_all: bool = False
    """True where the metric exists over a set of cases only (see `over`)."""
    is_versioned_by_hand: ClassVar[bool] = False
    """True where the label alone is the version: the author says when the meaning changes."""
    max_cpu_share: float | None = None
    """CPU seconds a second that it may use in the collector, in a process of its own; None: not limited."""
    own_memory_mb: int = 0
    """Memory that it needs beyond the limit of a user's evaluator."""
    immediate: bool = False
    """True where `run` is no coroutine and never waits: see `at_once`."""
    reads_history: bool = True
    """False where it reads one turn alone: the turns before need not be fetched."""
    judge: Judge | None = None
    threshold: float | None = None
    """On the native scale: passing from here on (up to here, where lower is better)."""
    params: Mapping[str, Any] = MappingProxyType({})
    """The configured parameters; part of the version."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A subclass with another `run` may wait and read all, unless it says so; a version in text is a `Version`."""
        super().__init_subclass__(**options)
        if {"run", "_attempt", "__call__"} & cls.__dict__.keys() and "immediate" not in cls.__dict__:
            cls.immediate, cls.reads_history = False, True
        if isinstance(stated := cls.__dict__.get("version"), str):  # a class may state its version as a text
            cls.version = Version(stated, stated)  # type: ignore[assignment]

    def __init__(self, *, threshold: float | None = None, **params: Any) -> None:
        self.threshold = threshold
        self.params = {"threshold": threshold, **params}

    @abstractmethod
    def run(self, case: Case) -> Any:
        """Score one case that has every needed field; may be `async def`."""

    async def over(self, cases: Sequence[Case]) -> EvaluationResult:
        """Score a set of cases as one result; only where `takes_all`."""
        if len(cases) != 1:
            raise ConfigurationError(f"{self.name} scores one case at a time")
        return await self(cases[0])

    def prompt(self) -> str:
        """Every prompt text the evaluator may send, joined; part of the version."""
        return ""

    def version_parts(self) -> dict[str, Any]:
        """Everything that decides a score."""
        return {
            "label": self.label,
            "prompt": self.prompt(),
            "parameters": dict(self.params),
            "parser": self.parser,
            "scale": asdict(self.scale),
            "language": self.language,
        }

    @cached_property
    def version(self) -> Version:
        """12 hex of sha256 over the canonical JSON of `version_parts`; of a user's function the label."""
        code = self._code()
        text = self.label if self.is_versioned_by_hand else digest(self.version_parts())
        return Version(text, self.label, None if _is_own(code) else source_digest(code))

    def _code(self) -> UserCode:
        """The class or function that a user wrote, where the evaluator is a user's."""
        return type(self)

    @property
    def judge_id(self) -> str | None:
        """Model and sampling parameters of the judge; None for a judge-free evaluator."""
        return self.judge.id if self.judge else None

    def estimate(self, case: Case) -> Estimate:
        """Judge calls and tokens of this case, repairs apart; zero where no judge is asked.

        By default each call of a user's class is counted with the whole case in it.
        """
        calls = 0 if not self.wants_judge else 1 if self.cost_class == "1 call" else _SEVERAL
        return self._estimate(case, calls=calls, instructions=_INSTRUCTIONS, reply=_REPLY)

    def _estimate(self, case: Case, *, calls: int, instructions: int, reply: int, repairs: int = 0) -> Estimate:
        """So many calls with the whole case and so many tokens of instructions in each."""
        if not calls or any(case.lacks(field) for field in self.needs):
            return Estimate()
        turns = (text for turn in case.history or () for text in (turn.query, turn.response))
        texts = (case.query, case.response, case.second_response, *case.references, *case.texts, *turns)
        tokens = instructions + sum(count_tokens(text) for text in texts if text)
        longest = max_tokens_of(self.judge)
        return Estimate(
            calls=calls,
            input_tokens=calls * tokens,
            output_tokens=calls * reply,
            max_input_tokens=(calls + repairs) * tokens + repairs * longest,
            max_output_tokens=(calls + repairs) * longest,
        )

    async def __call__(self, case: Case) -> EvaluationResult:
        """Score one case; raises nothing but cancellation."""
        calls: list[JudgeCall] = []
        try:
            self._demand(case)
            return self._settle(case, as_outcome(await self._attempt(case, calls)), calls)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a failure is a value, never raised
            return self._failure(case, calls, error)

    def at_once(self, case: Case) -> EvaluationResult:
        """Score one case without an event loop, in any thread; the same result as calling it. Only where `immediate`.

        Many cases in a row cost a third less this way: no coroutine and no task for each.
        """
        try:
            self._demand(case)
            return self._settle(case, as_outcome(self.run(case)), [])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a failure is a value, never raised
            return self._failure(case, [], error)

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        del calls
        value = await asyncio.to_thread(self.run, case) if self._may_block else self.run(case)
        return await value if inspect.isawaitable(value) else value

    @cached_property
    def _may_block(self) -> bool:
        """Whether a user's code is not `async`: it runs in a thread, and other cases go on meanwhile."""
        code = self._code()
        return not _is_own(code) and not inspect.iscoroutinefunction(code if inspect.isroutine(code) else self.run)

    def _demand(self, case: Case) -> None:
        missing = sorted(field for field in self.needs if case.lacks(field))
        if missing:
            raise MissingField(*missing)

    def _settle(self, case: Case, outcome: Outcome | EvaluationResult, calls: list[JudgeCall]) -> EvaluationResult:
        """The result of an outcome: normalized by the scale, passing by the threshold."""
        if isinstance(outcome, EvaluationResult):
            own = {"evaluator": self.name, "version": str(self.version), "judge": self.judge_id, "case": case}
            texts = clean(outcome.model_dump(include={"label", "explanation", "parts", "error"}))
            return outcome.model_copy(update={**texts, **own, "calls": outcome.calls or tuple(calls)})
        normalized, passing = outcome.normalized, outcome.passing
        if outcome.score is not None:
            if normalized is None:
                normalized = self.scale.normalize(outcome.score)
            if passing is None and self.threshold is not None:
                passing = self.scale.passes(outcome.score, self.threshold)
        return self._result(
            case,
            calls,
            score=outcome.score,
            normalized=normalized,
            passing=passing,
            label=outcome.label,
            explanation=outcome.explanation,
            parts=dict(outcome.parts),
            ci95=outcome.ci95,
        )

    def _failure(self, case: Case, calls: list[JudgeCall], error: BaseException) -> EvaluationResult:
        if isinstance(error, (MissingField, Unreadable)):
            status: Status = "skipped" if isinstance(error, MissingField) else "invalid"
            label = getattr(error, "label", None)
            return self._result(case, calls, status=status, explanation=str(error), label=label)
        return self._result(
            case,
            [*calls, *getattr(error, "calls", ())],
            status="error",
            explanation=f"{type(error).__name__}: {error}",
            error=None
            if isinstance(error, (JudgeError, ConfigurationError))
            else "".join(traceback.format_exception(error, limit=-6)),
            retriable=getattr(error, "retriable", isinstance(error, OSError)),
        )

    def _result(self, case: Case, calls: list[JudgeCall], **values: Any) -> EvaluationResult:
        if not self.immediate:  # those read clean cases alone
            values = clean(values)
        return EvaluationResult.of(self, case=case, calls=tuple(calls), **values)


class AskingEvaluator(Evaluator):
    """Base of evaluators that record the calls they make: subclasses write `_attempt`."""

    async def run(self, case: Case) -> Any:
        """Score one case without recording the calls."""
        return await self._attempt(case, [])

    @abstractmethod
    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        """Score one case; the calls are added to the list."""


class PlainEvaluator(Evaluator):
    """Base of our evaluators that have no parameter but the threshold; `constants` are part of the version, too."""

    reads_history = False
    constants: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, *, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold, **self.constants)


_ALIASES = {"input": "query", "output": "response", "expected": "reference"}
_FIELDS = frozenset(Case.model_fields)
_WHOLE: Mapping[str, Callable[[Case], Any]] = {"case": lambda case: case, "trace": lambda case: case.facts}
"""Parameters that receive more than a field."""


class Function(Evaluator):
    """A plain function as an evaluator: its parameter names say which case fields it needs.

    `case` and `trace` receive the whole case and the facts of its run; parameters with a default that are no case field
    are options. The score is the function's number; it is normalized when it lies in 0..1 or in `scale`.
    """

    parser = "function"

    def __init__(
        self,
        function: UserCode,
        *,
        name: str | None = None,
        needs: Iterable[str] | None = None,
        scale: Scale | None = None,
        label: str | None = None,
        threshold: float | None = None,
        cost_class: CostClass = "free",
        language: str | None = None,
        **params: Any,
    ) -> None:
        super().__init__(threshold=threshold, **params)
        self.function = function
        self.name = name or function.__name__
        self.__doc__ = function.__doc__
        self.scale = scale or Scale(kind="open")
        self.language = language
        self.cost_class = cost_class
        self.label = label or "1"
        self.immediate = _is_own(function)
        self._fields, required = _signature(function, params)
        self.needs = frozenset(required if needs is None else needs)

    def run(self, case: Case) -> Any:
        """Call the function with the fields it names."""
        fields = {
            name: _WHOLE[field](case) if field in _WHOLE else getattr(case, field)
            for name, field in self._fields.items()
        }
        options = {key: value for key, value in self.params.items() if key != "threshold"}
        return self.function(**fields, **options)

    def _code(self) -> UserCode:
        return self.function


class _UserFunction(Function):
    is_versioned_by_hand = True


def _is_own(function: UserCode) -> bool:
    """Whether the function belongs to this package; a user's function may wait."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def _signature(function: UserCode, params: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Which case field each parameter receives, and which fields are required."""
    fields: dict[str, str] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        field = _ALIASES.get(name, name)
        optional = parameter.default is not parameter.empty
        if name in params or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if field in _FIELDS or field in _WHOLE:
            fields[name] = field
            if not optional and field not in _WHOLE:
                required.append(field)
        elif not optional:
            names = sorted(_FIELDS | _WHOLE.keys())
            ours = COLUMNS.get(name)
            hint = f"; it is called {ours!r}" if ours else nearest(name, names) or f"; known are {', '.join(names)}"
            raise ConfigurationError(f"{function.__name__}: parameter {name!r} is no case field{hint}")
    return fields, required


@overload
def evaluator(function: UserCode, /) -> Function: ...
@overload
def evaluator(
    *,
    version: str = "1",
    name: str | None = None,
    scale: Scale | tuple[float, float] | None = None,
    threshold: float | None = None,
    replaces: bool = False,
    **params: Any,
) -> Callable[[UserCode], Function]: ...
def evaluator(
    function: UserCode | None = None,
    /,
    *,
    version: str = "1",
    name: str | None = None,
    scale: Scale | tuple[float, float] | None = None,
    threshold: float | None = None,
    replaces: bool = False,
    **params: Any,
) -> Function | Callable[[UserCode], Function]:
    """Make an evaluator of a function whose parameter names are case fields; `version` is its version.

    `replaces` lets it take the place of an evaluator that has its name already.

    Raises `ConfigurationError` when a required parameter is no case field.
    """
    span = Scale(lo=scale[0], hi=scale[1]) if isinstance(scale, tuple) else scale

    def wrap(target: UserCode) -> Function:
        made = _UserFunction(target, name=name, scale=span, label=version, threshold=threshold, **params)
        made.replaces = replaces
        return made

    return wrap if function is None else wrap(function)
