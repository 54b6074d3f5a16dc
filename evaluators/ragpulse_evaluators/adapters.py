"""Runs metrics of LlamaIndex, RAGAS, DeepEval, autoevals and TruLens as ours: a case in, a result with a status out.

A package is imported when one of its objects is adapted: it made the object, so it is installed.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from typing import Any, ClassVar

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.columns import COLUMNS
from ragpulse_evaluators.digest import digest
from ragpulse_evaluators.errors import ConfigurationError, MissingField, NothingToScore, Unreadable
from ragpulse_evaluators.evaluator import AskingEvaluator, Evaluator, Scale
from ragpulse_evaluators.registry import Params, required_of
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome

_FIELDS = ("query", "response", "contexts", "reference", "second_response")
_FIELD_OF = {
    **{field: field for field in _FIELDS},
    **COLUMNS,
    "prompt": "query",
    "statement": "response",
    "source": "contexts",
    "context_chunks": "contexts",
    "ground_truth_response": "reference",
}
"""What a metric calls a field, and ours."""
_MODEL = ("get_model_name", "model_name", "model_engine", "model")
"""Attributes in which an object names the model that it asks, best first."""
_NO_SETTING = re.compile("key|secret|token|url|client|cache|verbose|log|_id$", re.I)
"""Attributes that do not change the meaning of a score, or must not be read."""
_PLACEHOLDER = re.compile(r"{{[#{]?\s*(\w+)")
"""A variable of a prompt of autoevals."""
_SETTINGS = ("model", "model_name", "temperature", "instruction", "language")
"""Attributes that are read of an object that a metric holds."""


class Foreign(AskingEvaluator):
    """A metric of another package; its class, settings and model and the package's version are part of the version."""

    parser: ClassVar[str] = "foreign"
    distribution: ClassVar[str]

    def __init__(
        self, target: Any, *, name: str | None, needs: Iterable[str] | None, scale: Scale, threshold: float | None
    ) -> None:
        self.target, self.model = target, _model_in(target)
        super().__init__(
            threshold=threshold,
            target=f"{type(target).__module__}.{type(target).__qualname__}",
            model=self.model,
            settings=digest(self.settings()),
        )
        self.name = name or getattr(target, "name", None) or type(target).__name__
        self.needs = frozenset(self.inferred() if needs is None else needs)
        self.scale = scale
        versions = (installed.version for installed in distributions(name=self.distribution))
        self.label = f"{self.distribution} {next(versions, 'unknown')}"
        embeds = any("embedding" in key for key in _attributes(target))
        self.cost_class = "k calls" if self.model else "embedding" if embeds else "free"

    @property
    def judge_id(self) -> str | None:
        """The model that the package asks; None where it names none."""
        return self.model

    def settings(self) -> Params:
        """The configured settings, for the version."""
        return _configured(self.target)

    def inferred(self) -> Iterable[str]:
        """Case fields that the metric is known to need before it runs."""
        return ("response",)

    def _call(self, sent: int | None, received: int | None, cost: float | None) -> JudgeCall:
        """Tokens and cost of all calls of a case as one."""
        return JudgeCall(model=self.model or "", input_tokens=sent, output_tokens=received, cost_usd=cost)

    def _failure(self, case: Case, calls: list[JudgeCall], error: BaseException) -> EvaluationResult:
        """An error of a package that asks a model may pass: the packages do not say which do not."""
        failed = super()._failure(case, calls, error)
        return failed.model_copy(update={"retriable": failed.status == "error" and self.cost_class != "free"})


def _attributes(target: Any) -> dict[str, Any]:
    return dict(getattr(target, "__dict__", {}))


def _configured(target: Any) -> dict[str, Any]:
    """The attributes that parameters of the constructor set; an object may keep results beside them."""
    constructors = [vars(layer)["__init__"] for layer in type(target).__mro__[:-1] if "__init__" in vars(layer)]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    values = {name: getattr(target, name, getattr(target, f"_{name}", None)) for name in sorted(names)}
    return {name: _setting(value) for name, value in values.items() if not _NO_SETTING.search(name)}


def _setting(value: Any) -> Any:
    """A setting as JSON; of an object its type and what changes its answers."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _setting(item) for key, item in value.items() if not _NO_SETTING.search(str(key))}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_setting(item) for item in value]
    kind = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    attributes = {key: getattr(value, key, None) for key in _SETTINGS}
    plain = {key: item for key, item in attributes.items() if isinstance(item, (str, int, float))}
    return {"type": getattr(kind, "__qualname__", str(kind)), **plain}


def _model_in(target: Any) -> str | None:
    """The name of the model that a metric asks: its own attribute, or that of an object it holds."""
    attributes = [
        getattr(item, "__self__", item) for key, item in _attributes(target).items() if "embedding" not in key
    ]
    for value in (target, *attributes):
        for key in _MODEL:
            name = getattr(value, key, None) or getattr(getattr(value, "metadata", None), key, None)
            name = name() if inspect.ismethod(name) else name
            if isinstance(name, str) and name:
                return name
    return None


def _present(case: Case) -> dict[str, Any]:
    """The fields of the case that have a value, as strings."""
    fields = {
        "query": case.query,
        "response": case.response,
        "contexts": None if case.contexts is None else list(case.texts),
        "reference": "\n".join(case.references) or None,
        "second_response": case.second_response,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _case_fields(owner: str, names: Iterable[str]) -> list[str]:
    """Our fields for the names of another package; raises `ConfigurationError` for one that a case never has."""
    names = list(names)
    if unknown := [name for name in names if name not in _FIELD_OF]:
        raise ConfigurationError(f"{owner} needs {unknown[0]!r}; a case has {', '.join(_FIELDS)}")
    return [_FIELD_OF[name] for name in names]


class LlamaIndexEvaluator(Foreign):
    """`aevaluate(query, response, contexts, ...)`; an `invalid_result` is invalid."""

    distribution = "llama-index-core"

    def settings(self) -> Params:
        """The prompts too, which may be replaced."""
        prompts = self.target.get_prompts() if hasattr(self.target, "get_prompts") else {}
        return {**super().settings(), "prompts": {key: value.get_template() for key, value in prompts.items()}}

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        fields = dict.fromkeys(("query", "response", "contexts")) | _present(case)
        try:
            result = await self.target.aevaluate(**fields)
        except ValueError as error:
            if "must be provided" in str(error):
                raise MissingField(*(key for key, value in fields.items() if value is None)) from None
            raise
        if getattr(result, "invalid_result", False):
            raise Unreadable(getattr(result, "invalid_reason", None) or "the evaluator called its result invalid")
        return Outcome(score=result.score, passing=result.passing, explanation=result.feedback)


class RagasMetric(Foreign):
    """A RAGAS metric: `ascore(**fields)` of its collections, or `single_turn_ascore(sample)` of the older classes."""

    distribution = "ragas"

    def settings(self) -> Params:
        """The instructions of its prompts too, which may be replaced."""
        prompts = {key: getattr(value, "instruction", None) for key, value in _attributes(self.target).items()}
        return {**super().settings(), "prompts": {key: text for key, text in prompts.items() if isinstance(text, str)}}

    def inferred(self) -> Iterable[str]:
        """The required columns, or the parameters of `ascore`."""
        older = getattr(self.target, "required_columns", {}).get("SINGLE_TURN")
        return _case_fields(self.name, required_of(self.target.ascore) if older is None else sorted(older))

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        names = {"query": "user_input", "contexts": "retrieved_contexts"}
        fields = {names.get(key, key): value for key, value in _present(case).items()}
        if hasattr(self.target, "single_turn_ascore"):
            from ragas import SingleTurnSample  # type: ignore[import-not-found]  # there already: it made the target

            fields.pop("second_response", None)
            return Outcome(score=float(await self.target.single_turn_ascore(SingleTurnSample(**fields))))
        parameters = inspect.signature(self.target.ascore).parameters
        result = await self.target.ascore(**{key: value for key, value in fields.items() if key in parameters})
        return Outcome(score=float(result.value), explanation=result.reason)


class DeepEvalMetric(Foreign):
    """`a_measure(test_case)`; a metric stores its last score, so each case gets a copy of it."""

    distribution = "deepeval"

    def inferred(self) -> Iterable[str]:
        """Those of a G-Eval metric; others say what is missing when they are asked."""
        params = getattr(self.target, "evaluation_params", None) or ()
        return _case_fields(self.name, (param.value for param in params))

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        from deepeval.errors import MissingTestCaseParamsError  # type: ignore[import-not-found]  # there already
        from deepeval.test_case import LLMTestCase  # type: ignore[import-not-found]

        fields, metric = _present(case), copy.copy(self.target)
        test = LLMTestCase(
            input=fields.get("query", ""),
            actual_output=fields.get("response"),
            expected_output=fields.get("reference"),
            retrieval_context=fields.get("contexts"),
        )
        try:
            score = await metric.a_measure(test)
        except MissingTestCaseParamsError as missing:
            raise MissingField(str(missing)) from None
        finally:
            calls += self._calls(metric)
        return Outcome(score=score, passing=metric.success, explanation=metric.reason)

    def _calls(self, metric: Any) -> list[JudgeCall]:
        """Cost and tokens of the metric's calls, as one call; none where it tells neither."""
        cost, sent, received = (getattr(metric, k, None) for k in ("evaluation_cost", "input_tokens", "output_tokens"))
        return [] if cost is None and not sent else [self._call(sent, received, cost)]


class AutoevalsScorer(Foreign):
    """`eval_async(output, expected, input=...)`; an error it reports is invalid."""

    distribution = "autoevals"

    def settings(self) -> Params:
        """The messages too, which a prompt template becomes."""
        return {**super().settings(), "messages": _setting(getattr(self.target, "messages", None))}

    def inferred(self) -> Iterable[str]:
        """The fields that a classifier's prompt names; others say what is missing when they are asked."""
        texts = (message.get("content", "") for message in getattr(self.target, "messages", None) or ())
        variables = {name for text in texts for name in _PLACEHOLDER.findall(text)}
        return {"response", *(_FIELD_OF[name] for name in variables if name in _FIELD_OF)}

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        fields = _present(case)
        names = {"query": "input", "contexts": "context"}
        extra = {name: fields[field] for field, name in names.items() if field in fields}
        output, expected = fields.get("response"), fields.get("reference")
        try:
            result = await self.target.eval_async(output=output, expected=expected, **extra)
        except ValueError as error:
            missing = re.search(r"requires (?:an? )?(\w+) value", str(error))
            if missing is None:
                raise
            raise MissingField(_FIELD_OF.get(missing[1], missing[1])) from None
        if result.error is not None:
            raise Unreadable(str(result.error))
        if result.score is None:
            raise NothingToScore("the scorer returned no score")
        return Outcome(score=result.score, explanation=(result.metadata or {}).get("rationale"))


class TruLensMetric(Foreign):
    """A TruLens `Metric`, by the parameter names of its function (`prompt`, `response`, `source`, `statement`, ...).

    It runs in a thread. Tokens and cost are those that its endpoints track.
    """

    distribution = "trulens-core"

    def inferred(self) -> Iterable[str]:
        """The parameters of its function that have no default."""
        return _case_fields(self.name, required_of(self.target.imp))

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        from trulens.core.feedback.endpoint import Endpoint  # type: ignore[import-not-found]  # there already

        fields, arguments = _present(case), {}
        for name, parameter in inspect.signature(self.target.imp).parameters.items():
            field = _FIELD_OF.get(name)
            if field in fields and parameter.default is parameter.empty:
                value = fields[field]
                many = "list" in str(parameter.annotation).lower()
                arguments[name] = "\n\n".join(value) if isinstance(value, list) and not many else value
        result, tally = await asyncio.to_thread(Endpoint.track_all_costs_tally, self.target, **arguments)
        cost = tally()
        if cost.n_requests:
            calls.append(self._call(cost.n_prompt_tokens, cost.n_completion_tokens, cost.cost))
        score, details = result if isinstance(result, tuple) else (result, None)
        reasons = details.items() if isinstance(details, Mapping) else ()
        reason = next((str(value) for key, value in reasons if "reason" in str(key)), None)
        return Outcome(score=float(score), explanation=reason)


_KINDS: Mapping[str, type[Foreign]] = {
    "llama_index": LlamaIndexEvaluator,
    "ragas": RagasMetric,
    "deepeval": DeepEvalMetric,
    "autoevals": AutoevalsScorer,
    "trulens": TruLensMetric,
}


def adapt(
    target: Any,
    *,
    name: str | None = None,
    needs: Iterable[str] | None = None,
    scale: Scale | None = None,
    threshold: float | None = None,
) -> Evaluator:
    """A metric of LlamaIndex, RAGAS, DeepEval, autoevals or TruLens (or a subclass) as one of ours.

    `needs` is inferred by default: a case without such a field is skipped. `scale` is the range of its score, 0 to 1 by
    default. An object with `aevaluate(query, response, contexts)` counts as LlamaIndex's. Raises `ConfigurationError`
    for anything else.
    """
    packages = [layer.__module__.partition(".")[0] for layer in type(target).__mro__]
    kind = next((_KINDS[package] for package in packages if package in _KINDS), None)
    if kind is None and hasattr(target, "aevaluate"):
        kind = LlamaIndexEvaluator
    if kind is None:
        raise ConfigurationError(f"{type(target).__qualname__} is not a metric of {', '.join(_KINDS)}")
    return kind(target, name=name, needs=needs, scale=scale or Scale(), threshold=threshold)
