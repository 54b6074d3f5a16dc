"""Parameters of operations: what their types accept, and how a mistake is reported.

The query string, the JSON body and the placeholders of the path make one mapping. `Params.parse` turns it into a typed
model. A name that the model does not have is refused with the nearest one it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_args
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import ErrorDetails

from ragpulse_collector.analysis.selection import duration_s, instant
from ragpulse_collector.interface import unknown_parameter
from ragpulse_collector.refusals import FieldError, Invalid, nearest
from ragpulse_collector.settings import Binding
from ragpulse_collector.settings.zones import ZoneName
from ragpulse_collector.store import Store
from ragpulse_collector.zones import DAYS, Day

Values = Mapping[str, Any]
"""Parameters by name, as a request has them."""
_LONG_AGO = datetime(2000, 1, 1)
_PREFIX = "Value error, "
_MEMBERS = {"metadata.": "metadata", "label.": "labels", "label:": "labels"}
"""How members of a parameter may be written."""
Kind = Literal["metric", "evaluator"]


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a metric or an evaluator in a request; in an annotation without a name: what its values are."""

    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation."""

    actor: str = "api"
    """The name of the key, for the audit."""
    accept: str = ""
    """The `Accept` header."""
    binding: Binding | None = None
    """The services and environments that the answer is limited to; None: all."""


class Params(BaseModel):
    """The parameters of an operation; this one has none."""

    # Built at first use: building all of them at startup takes 60 ms.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True, defer_build=True
    )
    OWN: ClassVar[Sequence[str]] = ()
    """The fields that an operation has beside a class of parameters; no filters."""
    _caller: Caller = PrivateAttr(default_factory=Caller)

    @property
    def caller(self) -> Caller:
        """The caller."""
        return self._caller

    @classmethod
    def parse(cls, values: Values, caller: Caller | None = None) -> Self:
        """Return the typed parameters; null and empty text count as absent. Raises Invalid."""
        for prefix, parameter in _MEMBERS.items():
            values = _with_members(values, cls.names(), prefix, parameter)
        _refuse_unknown(cls, values)
        try:
            params = cls.model_validate({name: value for name, value in values.items() if value not in (None, "")})
        except ValidationError as error:
            raise _refusal(
                [
                    FieldError(".".join(map(str, item["loc"][:3])), _sentence(item))
                    for item in error.errors(include_url=False, include_context=False)
                ]
            ) from error
        if caller is not None:
            params._caller = caller
        return params

    def check_binding(self, store: Store) -> None:
        """Raise NotFound where the caller's key is not bound to what the parameters name; called after reading."""

    def named(self) -> list[Named]:
        """Return the metrics and evaluators that the request names."""
        return [
            Named(kind, name)
            for field, kind in self._kinds().items()
            for name in _many(getattr(self, field) or ())
            if name and (kind == "metric" or ":" not in name)
        ]

    @classmethod
    @cache
    def _kinds(cls) -> dict[str, Kind]:
        """Return what the fields name that name a metric or an evaluator."""
        found = {name: _kind(field.annotation) or _kind(field.metadata) for name, field in cls.model_fields.items()}
        return {name: kind for name, kind in found.items() if kind}

    @classmethod
    def names(cls) -> list[str]:
        """Return the public names of all parameters."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def _kind(annotation: Any) -> Kind | None:
    """Return what the values of an annotation name."""
    if isinstance(annotation, Named):
        return annotation.kind
    parts = annotation if isinstance(annotation, list) else get_args(annotation)
    return next(filter(None, map(_kind, parts)), None)


def is_params(kind: Any) -> bool:
    """Return whether a type stands for several parameters."""
    return isinstance(kind, type) and issubclass(kind, Params)


def model_of(name: str, parameters: Iterable[tuple[str, Any, Any]]) -> type[Params]:
    """Return the model of parameters: name, type and default (`...` for none). A name that ends in `_` loses it."""
    base, fields = Params, dict[str, Any]()
    for parameter, kind, default in parameters:
        if is_params(kind):
            base = kind
        elif kind is not Caller:
            texts = [text for text in getattr(kind, "__metadata__", ()) if isinstance(text, str)]
            alias = parameter.rstrip("_") if parameter.endswith("_") else None
            fields[parameter] = (kind, Field(default, alias=alias, description=next(iter(texts), None)))
    if not fields:
        return base
    model = cast("type[Params]", create_model(name, __base__=base, **fields))
    model.OWN = tuple(fields)
    return model


def _with_members(values: Values, names: Sequence[str], prefix: str, parameter: str) -> Values:
    """Put `metadata.tenant` into `metadata`, for models that have it."""
    members = {name: value for name, value in values.items() if name.startswith(prefix) and value not in (None, "")}
    if not members or parameter not in names:
        return values
    whole = _json(values.get(parameter) or {})
    if isinstance(whole, dict):
        whole = whole | {name.removeprefix(prefix): value for name, value in members.items()}
    return {name: value for name, value in values.items() if not name.startswith(prefix)} | {parameter: whole}


def _refuse_unknown(model: type[Params], values: Values) -> None:
    names = model.names()
    errors = [FieldError(name[:80], unknown_parameter(name, names)) for name in values if name not in names]
    if errors:
        raise _refusal(errors)


def _refusal(errors: Sequence[FieldError]) -> Invalid:
    return Invalid("; ".join(error.detail for error in errors), errors=errors)


def _sentence(error: ErrorDetails) -> str:
    """Describe a mistake and name its parameter."""
    name, text = str(error["loc"][0]) if error["loc"] else "", error["msg"].removeprefix(_PREFIX)
    if error["type"] == "missing":
        return f"{'.'.join(map(str, error['loc']))} is missing"
    if isinstance(error["input"], list | dict) and len(error["loc"]) == 1:
        return f"{name} takes one value, not a list or an object"
    if error["type"] == "value_error":
        return f"{name}: {text}" if name else text
    value, choices = str(error["input"]), re.findall("'([^']*)'", text) if error["type"] == "literal_error" else ()
    return f"{name}: {text[:1].lower()}{text[1:]}, not {value[:80]!r}{nearest(value, choices)}"


def _time(value: Any) -> datetime | timedelta | str:
    """Read a time; a relative one becomes a timedelta, so that equal questions stay equal while time passes.

    A time without an offset stays so: only the request knows its zone.
    """
    if isinstance(value, datetime | timedelta):
        return value
    text = str(value).strip()
    if text == "now" or text in DAYS:
        return text
    time = instant(text, now=_LONG_AGO)
    assert time is not None
    return time - _LONG_AGO if text.startswith("-") else datetime.fromisoformat(text)


def _since(value: Any) -> datetime | timedelta | str:
    """Read a time, or an age such as `7d`."""
    try:
        return -timedelta(seconds=duration_s(str(value).strip().removeprefix("-")))
    except ValueError:
        return _time(value)


def _step(value: Any) -> float | str:
    return str(value) if value in ("auto", "all") else duration_s(value)


def _many(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


def _names(value: Any) -> Any:
    """Read a list: JSON, or names separated by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _json(value)
    return [part.strip() for part in value.split(",") if part.strip()]


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise Invalid(f"{value[:80]!r} is no JSON: {error}") from error


def _trace_id(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if not re.match(r"[0-9a-fA-F]{32}\Z", str(value)):
        raise Invalid(f"{str(value)[:80]!r} is no trace id: 32 hex digits are expected")
    return UUID(str(value))


def _span_id(value: Any) -> int:
    if not re.match(r"[0-9a-fA-F]{16}\Z", str(value)):
        raise Invalid(f"{str(value)[:80]!r} is no span id: 16 hex digits are expected")
    return int(str(value), 16)


def _span_choice(value: Any) -> str:
    return str(value) if value == "brief" else f"{_span_id(value):016x}"


def _schema(description: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description, **more})


Time = Annotated[
    datetime | timedelta | Literal["now"] | Day,
    BeforeValidator(_time),
    _schema(
        f"ISO 8601, `now`, relative (`-24h`, `-7d`), or {', '.join(f'`{day}`' for day in DAYS)}.",
        examples=["2026-11-21T14:00Z", "-24h"],
    ),
]
LocalZone = Annotated[
    ZoneName,
    _schema(
        "IANA name of the zone of local days, and of times without an offset: buckets of a day or more and `today`"
        " begin at its midnight.",
        examples=["Europe/Berlin"],
    ),
]
Since = Annotated[
    datetime | timedelta | Literal["now"] | Day,
    BeforeValidator(_since),
    _schema("An age such as `7d`, or a time.", examples=["7d"]),
]
Duration = Annotated[
    float,
    BeforeValidator(duration_s),
    _schema("Seconds, or `30s`, `5m`, `6h`, `7d`, `2w`.", examples=["6h"]),
]
Step = Annotated[
    float | Literal["auto", "all"],
    BeforeValidator(_step),
    _schema("The bucket width: seconds, `5m`, `1h`, `auto`, or `all` for one bucket.", examples=["1h", "auto"]),
]
Many = Annotated[list[str], BeforeValidator(_many)]
"""One text or several."""
AS_NAMES = BeforeValidator(_names)
"""Also accepts a list as one text with commas, or as JSON text."""
Names = Annotated[list[str], AS_NAMES]
"""A list of names, also as one text with commas."""
TraceId = Annotated[UUID, BeforeValidator(_trace_id), _schema("32 hex digits.", pattern="^[0-9a-fA-F]{32}$")]
TraceIds = Annotated[list[TraceId], BeforeValidator(_names)]
"""A list of trace ids, also as one text with commas."""
SpanId = Annotated[int, BeforeValidator(_span_id), _schema("16 hex digits.", pattern="^[0-9a-fA-F]{16}$")]
SpanChoice = Annotated[str, BeforeValidator(_span_choice), _schema("`brief`, or the id of one span.")]
JsonList = BeforeValidator(_json)
"""Also accepts a list as JSON text, as a query string has to write it."""
Members = Annotated[dict[str, Many], BeforeValidator(_json)]
"""Keys of the metadata, or names of labels, with their values."""
Count = Annotated[int, Field(ge=1)]
MAX_TEXT = 10_000
Text = Annotated[str, AfterValidator(lambda text: text[:MAX_TEXT])]
"""A text that a person typed, cut at its limit."""
Mask = Callable[[str], str]
"""Masks the secrets in a text that a person typed."""
Unit = Annotated[float, Field(ge=0, le=1)]
EvaluatorName = Annotated[str, Named("evaluator")]
"""NAME or NAME@VERSION of an evaluator that the collector knows or has scores of."""
MetricName = Annotated[str, Named("metric")]
"""The name of a metric, such as `latency_p95` or `quality:groundedness`."""
