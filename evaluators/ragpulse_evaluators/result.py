"""The outcome of an evaluator, its scale, and the result made of both: case → evaluator → result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ragpulse_evaluators.case import Case, Context, clean
from ragpulse_evaluators.errors import LACKING, NothingToScore, Unreadable
from ragpulse_evaluators.shown import card

Status = Literal["ok", "invalid", "skipped", "error"]


class JudgeCall(BaseModel):
    """One question put to a judge and its reply."""

    model_config = ConfigDict(frozen=True)

    prompt: str = ""
    """The messages as sent, joined for reading."""
    completion: str = ""
    """The reply, as it came."""
    model: str = ""
    elapsed_s: float = 0.0
    """Wall time of the call in seconds; a cached call keeps the recorded one."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """Tokens of the reply, reasoning included."""
    cached_tokens: int | None = None
    """Of `input_tokens`, those read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Of `input_tokens`, those written to it."""
    service_tier: str | None = None
    """The class of service that the provider states."""
    reasoning_tokens: int | None = None
    """Of `output_tokens`, those spent on reasoning that is not in `completion`; None where the server does not say."""
    finish_reason: str | None = None
    """Why the reply ended, as the provider spells it; `judges.replies.end_of` reads every spelling."""
    problem: str | None = None
    """Why the reply holds no answer: the field that was filled instead of the content."""
    estimated: bool = False
    """Whether tokens were estimated from the texts, because the server stated none that can be true."""
    sampling: dict[str, Any] | None = None
    """The sampling parameters as they were sent; None where the judge does not say."""
    cost_usd: float | None = None
    """None when the price is not known; 0.0 for a cached call."""
    cached: bool = False
    logprobs: dict[str, float] | None = None
    """For the first completion token: candidate → log-probability."""
    _storable = model_validator(mode="before")(clean)

    @property
    def elapsed_time(self) -> float:
        """PolyEval's name for `elapsed_s`."""
        return self.elapsed_s


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The expected cost of one case, known before it is asked."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    max_input_tokens: int = 0
    max_output_tokens: int = 0
    """With a repair of each reply, and replies as long as the limit that each call carries: what a budget reserves."""

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The value of an evaluator's `run`, before scale and threshold are applied."""

    score: float | None = None
    """On the native scale of the metric; None where the metric says there is nothing to score."""
    label: str | None = None
    passing: bool | None = None
    """Set it only where the metric itself decides; else the threshold does."""
    explanation: str | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    ci95: tuple[float, float] | None = None
    normalized: float | None = None
    """Set it only where the scale cannot say (a target); else the scale does."""


UNCLEAR = "unclear"
"""The label of a result that has a score and, though its evaluator decides, no verdict: `passing` is None."""


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


SHOWN = ("evaluator", "judge", "status", "score", "normalized", "passing", "label", "explanation")
"""What a notebook shows of a result."""


class EvaluationResult(BaseModel):
    """The verdict of one evaluator on one case; an unreadable reply is a status, never a fake 0.0."""

    model_config = ConfigDict(frozen=True)

    evaluator: str = ""
    version: str = ""
    judge: str | None = None
    """Model and sampling parameters of the judge; None where none was asked."""
    status: Status = "ok"
    score: float | None = None
    """Native scale, as the metric's authors print it (1..5, 0..1, seconds)."""
    normalized: float | None = Field(default=None, ge=0.0, le=1.0)
    """0..1, higher is better: what charts, composites and gates use."""
    label: str | None = None
    passing: bool | None = None
    explanation: str | None = None
    parts: dict[str, Any] = Field(default_factory=dict)
    """Details by statement, dimension or metric; JSON values only."""
    ci95: tuple[float, float] | None = None
    calls: tuple[JudgeCall, ...] = ()
    """Every judge call made for this result, also for an invalid one."""
    error: str | None = None
    """Traceback of an `error`, for debugging."""
    retriable: bool = False
    """True for an `error` where another attempt may succeed (an unreachable judge)."""
    case: Case | None = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _never_nan(cls, data: Any) -> Any:
        if not isinstance(data, dict) or (_finite(data.get("score")) and _finite(data.get("normalized"))):
            return data
        explanation = data.get("explanation") or "the score is not a finite number"
        nothing = dict.fromkeys(("score", "normalized", "passing"))
        return data | nothing | {"status": "invalid", "explanation": explanation}

    def _repr_html_(self) -> str:
        return card(self, SHOWN)

    @property
    def cost_usd(self) -> float | None:
        """What the judge cost; None where a call's price is unknown, 0 without a call."""
        costs = [call.cost_usd for call in self.calls]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def missing(self) -> bool:
        """True where there should be a verdict: invalid, failed, or skipped because the case lacks a field."""
        lacking = self.status == "skipped" and (self.explanation or "").startswith(LACKING)
        return lacking or self.status in ("invalid", "error")

    @property
    def unclear(self) -> bool:
        """True where the evaluator scored the case and could not decide between pass and fail."""
        return self.status == "ok" and self.passing is None and self.label == UNCLEAR

    @classmethod
    def of(cls, evaluator: Any, **values: Any) -> EvaluationResult:
        """A result under an evaluator's name, version and judge."""
        return cls(evaluator=evaluator.name, version=str(evaluator.version), judge=evaluator.judge_id, **values)

    @property
    def unit(self) -> float | None:
        """Another name for `normalized`."""
        return self.normalized

    @property
    def reasoning(self) -> str | None:
        """PolyEval's name for `explanation`."""
        return self.explanation

    @property
    def feedback(self) -> str | None:
        """LlamaIndex's name for `explanation`."""
        return self.explanation

    @property
    def grade(self) -> str | None:
        """PolyEval's name for `label`."""
        return self.label

    @property
    def pass_eval(self) -> bool | None:
        """PolyEval's name for `passing`."""
        return self.passing

    @property
    def responses(self) -> tuple[JudgeCall, ...]:
        """PolyEval's name for `calls`."""
        return self.calls

    @property
    def query(self) -> str | None:
        """The query of the case."""
        return self.case.query if self.case else None

    @property
    def response(self) -> str | None:
        """The response of the case."""
        return self.case.response if self.case else None

    @property
    def contexts(self) -> tuple[Context, ...] | None:
        """The contexts of the case."""
        return self.case.contexts if self.case else None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Native range of a score and how it becomes 0..1, higher is better."""

    lo: float = 0.0
    hi: float | None = 1.0
    """None: unbounded, so `normalized` stays None."""
    reverse: bool = False
    """True where lower is better (distances, harm)."""
    kind: Literal["minmax", "ratio", "clip", "open"] = "minmax"
    """`ratio` = score/hi (G-Eval); `clip` cuts to 0..1 (cosines); `open` = any number, normalized within 0..1 only."""

    def normalize(self, score: float) -> float | None:
        """Map a native score to 0..1; raises `Unreadable` when it lies outside the range."""
        if not math.isfinite(score):
            raise Unreadable(f"{score} is not a finite number")
        if self.kind == "open":
            return self._oriented(score) if 0.0 <= score <= 1.0 else None
        if self.hi is None:
            return None
        if not self.lo - 1e-9 <= score <= self.hi + 1e-9:
            raise Unreadable(f"{score:g} is outside {self.lo:g}..{self.hi:g}")
        if self.kind == "minmax":
            score = (score - self.lo) / (self.hi - self.lo)
        elif self.kind == "ratio":
            score = score / self.hi
        return self._oriented(min(1.0, max(0.0, score)))

    def _oriented(self, unit: float) -> float:
        return 1.0 - unit if self.reverse else unit

    def passes(self, score: float, threshold: float) -> bool:
        """Compare a native score with a native threshold in the direction that is better."""
        return score <= threshold if self.reverse else score >= threshold


def as_outcome(value: Any) -> Outcome | EvaluationResult:
    """Read what `run` or a user's function returned; None means "not applicable" and becomes `skipped`."""
    if isinstance(value, (Outcome, EvaluationResult)):
        return value
    value = _plain(value)
    if value is None:
        raise NothingToScore("nothing to score: the evaluator returned None")
    if isinstance(value, bool):
        return Outcome(score=float(value), passing=value)
    if isinstance(value, str):
        return Outcome(label=value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str | None):
        outcome = as_outcome(value[0])
        return replace(outcome, explanation=value[1]) if isinstance(outcome, Outcome) else outcome
    try:
        return Outcome(score=float(value))
    except (TypeError, ValueError):
        raise Unreadable(
            "an evaluator returns a bool, number, label, mapping or object of these, or (score, explanation), not"
            f" {type(value).__name__}"
        ) from None


def _plain(value: Any) -> Any:
    """A scalar of numpy or torch as Python's; a dataclass, a model of pydantic or a named tuple as a mapping."""
    if hasattr(value, "dtype"):
        with suppress(TypeError, ValueError, RuntimeError):  # an array of several
            return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    for method in ("model_dump", "_asdict"):
        if callable(convert := getattr(value, method, None)):
            return convert()
    return value


_OTHER_KEYS = {
    **dict.fromkeys(("comment", "reasoning", "reason", "rationale", "feedback"), "explanation"),
    **dict.fromkeys(("passed", "success"), "passing"),
    "value": "label",
    **dict.fromkeys(("key", "name"), None),
}
"""Keys of other packages' evaluators; `key` and `name` repeat the evaluator's name."""


def _from_mapping(given: Mapping[str, Any]) -> Outcome:
    renamed = {_OTHER_KEYS.get(key, key): _plain(item) for key, item in given.items()}
    value = {key: item for key, item in renamed.items() if key is not None}
    verdict = value.get("score", None if "label" in value else value.get("passing"))
    if isinstance(verdict, bool):
        value = {"passing": verdict, **value, "score": float(verdict)}
    keys = {field.name for field in fields(Outcome)}
    if unknown := sorted(set(value) - keys):
        raise Unreadable(f"unknown keys {unknown}; known are {sorted(keys)}")
    return Outcome(**value)
