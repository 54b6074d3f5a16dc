"""Does the answer keep a form: JSON, the right JSON, a schema, a regular expression within a time limit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import nonempty_references

if TYPE_CHECKING:
    import regex
    from jsonschema.protocols import Validator

_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


def read(text: str, *, fenced: bool = False) -> Any:
    """The JSON value of a text; `fenced` also takes it out of one Markdown fence.

    ValueError for anything else: NaN and Infinity are no JSON, nor is nesting deeper than Python can follow.
    """
    inside = _FENCE.fullmatch(text) if fenced else None
    try:
        return json.loads(inside[1] if inside else text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def is_json(response: str, *, fenced: bool = False) -> Outcome:
    """True where the answer is one JSON value (RFC 8259) and nothing else."""
    try:
        read(response, fenced=fenced)
    except ValueError as wrong:
        return _failed(str(wrong))
    return Outcome(score=1.0, passing=True)


def json_match(response: str, reference: str | tuple[str, ...], *, fenced: bool = False) -> Outcome:
    """True where the answer is the same JSON value as a reference; types count, key order and layout do not.

    null equals null, 1 equals 1.0, true does not equal 1. The explanation names the first difference. `Unreadable`
    where a reference is itself no JSON.
    """
    try:
        given = read(response, fenced=fenced)
    except ValueError as wrong:
        return _failed(f"the answer is no JSON: {wrong}")
    try:
        found = [difference(given, _wanted(text)) for text in nonempty_references(reference)]
    except RecursionError:
        raise Unreadable("nested too deeply to be compared") from None
    if None in found:
        return Outcome(score=1.0, passing=True)
    return _failed(found[0] or "")


def _wanted(text: str) -> Any:
    try:
        return read(text)
    except ValueError as wrong:
        raise Unreadable(f"the reference is no JSON: {wrong}") from None


def _failed(why: str) -> Outcome:
    return Outcome(score=0.0, passing=False, explanation=why)


def difference(given: Any, wanted: Any, path: str = "$") -> str | None:
    """The first place where two JSON values differ, in words; None where they are equal."""
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _difference_of_keys(given, wanted, path)
    if isinstance(given, list) and isinstance(wanted, list):
        if len(given) != len(wanted):
            return f"{path} has {len(given)} items, not {len(wanted)}"
        pairs = (difference(g, w, f"{path}[{i}]") for i, (g, w) in enumerate(zip(given, wanted, strict=True)))
        return next((found for found in pairs if found), None)
    same = _kind(given) is _kind(wanted) and given == wanted
    return None if same else f"{path} is {_short(given)}, not {_short(wanted)}"


def _difference_of_keys(given: dict[str, Any], wanted: dict[str, Any], path: str) -> str | None:
    for key in sorted(given.keys() ^ wanted.keys()):
        return f"{path}.{key} is missing" if key in wanted else f"{path}.{key} is not wanted"
    inner = (difference(given[key], wanted[key], f"{path}.{key}") for key in wanted)
    return next((found for found in inner if found), None)


def _kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


class JsonSchema(Evaluator):
    """Does the answer keep a JSON Schema? The schema is checked once, when it is configured.

    Without `schema` each case's reference is the schema. References to other documents are never fetched.
    """

    name = "json_schema"
    parser = "json"

    def __init__(
        self, *, schema: Mapping[str, Any] | bool | str | None = None, fenced: bool = False, name: str = "json_schema"
    ) -> None:
        schema = read(schema) if isinstance(schema, str) else schema
        super().__init__(schema=schema, fenced=fenced)
        self.name = name
        self.needs = frozenset({"response", "reference"} if schema is None else {"response"})
        self._validator = None if schema is None else _validator(schema)

    async def run(self, case: Any) -> Outcome:
        """Validate; the explanation names the place and the rule that is broken."""
        validator = self._validator or self._of_case(case.references[0])
        try:
            value = read(case.response, fenced=self.params["fenced"])
        except ValueError as wrong:
            return _failed(f"the answer is no JSON: {wrong}")
        return _verdict(validator, value)

    @staticmethod
    def _of_case(text: str) -> Validator:
        try:
            return _validator(_wanted(text))
        except ConfigurationError as wrong:
            raise Unreadable(str(wrong)) from None


def _validator(schema: Any) -> Validator:
    from jsonschema import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from jsonschema_specifications import REGISTRY

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as wrong:
        raise ConfigurationError(f"not a JSON Schema: {wrong.json_path}: {wrong.message}") from None
    # An explicit registry of the specifications alone: nothing is ever looked up over the network.
    return kind(schema, registry=REGISTRY)


def _verdict(validator: Validator, value: Any) -> Outcome:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        worst = best_match(validator.iter_errors(value))
    except Unresolvable as wrong:
        raise Unreadable(f"the schema refers to another document: {wrong}") from None
    return Outcome(score=1.0, passing=True) if worst is None else _failed(f"{worst.json_path}: {worst.message}")


def _is_json(*, fenced: bool = False) -> Evaluator:
    return Function(is_json, scale=Scale(), fenced=fenced)


def _json_match(*, fenced: bool = False) -> Evaluator:
    return Function(json_match, scale=Scale(), fenced=fenced)


_entry = partial(Entry, scale=Scale(), source="PolyEval")

_JSON_ENTRIES: tuple[Entry, ...] = (
    _entry(
        name="is_json",
        factory=_is_json,
        needs=("response",),
        description="Is the answer valid JSON?",
        example='get_evaluator("is_json", fenced=True)',
    ),
    _entry(
        name="json_match",
        factory=_json_match,
        needs=("response", "reference"),
        description="Is the answer the same JSON value as the reference?",
        example='get_evaluator("json_match")',
    ),
    _entry(
        name="json_schema",
        factory=JsonSchema,
        needs=("response",),
        source="PolyEval; JSON Schema",
        description="Is the answer valid under the JSON Schema?",
        example='get_evaluator("json_schema", schema={"type": "object", "required": ["answer"]})',
    ),
)


Mode = Literal["search", "match", "fullmatch"]


class Regex(Evaluator):
    """Does the answer match `pattern`? Without one each case's reference is the pattern.

    `mode`: found anywhere (`search`), at the start (`match`, PolyEval's), or as a whole (`fullmatch`). A pattern that
    runs longer than `timeout_s` makes the result invalid instead of stalling the process. A bad pattern is refused
    when it is configured.
    """

    name = "regex"
    parser = "regex"

    def __init__(
        self,
        *,
        pattern: str | None = None,
        mode: Mode = "search",
        ignore_case: bool = False,
        timeout_s: float = 0.5,
        name: str = "regex",
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigurationError(f"regex has no mode {mode!r}; choose one of {', '.join(get_args(Mode))}")
        super().__init__(pattern=pattern, mode=mode, ignore_case=ignore_case)
        self.name = name
        self.needs = frozenset({"response", "reference"} if pattern is None else {"response"})
        self._pattern = None if pattern is None else _compiled(pattern, ignore_case)
        self._mode, self._ignore_case, self._timeout_s = mode, ignore_case, timeout_s

    async def run(self, case: Case) -> Outcome:
        """Match; the explanation quotes what was matched."""
        compiled = self._pattern or self._of_case(case.references[0])
        try:
            found: Any = getattr(compiled, self._mode)(case.response, timeout=self._timeout_s)
        except TimeoutError:
            raise Unreadable(f"the pattern took longer than {self._timeout_s:g} s") from None
        explanation = None if found is None else f"matched {found[0][:60]!r}"
        return Outcome(score=float(found is not None), passing=found is not None, explanation=explanation)

    def _of_case(self, pattern: str) -> regex.Pattern[str]:
        try:
            return _compiled(pattern, self._ignore_case)
        except ConfigurationError as wrong:
            raise Unreadable(str(wrong)) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    import regex

    if not pattern:
        raise ConfigurationError("an empty regular expression matches every answer: give a pattern")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as wrong:
        raise ConfigurationError(f"not a regular expression: {wrong}") from None


def _format_adherence(
    *, pattern: str | None = None, schema: Mapping[str, Any] | str | None = None, fenced: bool = False
) -> Evaluator:
    """The whole answer against `pattern`, its JSON against `schema`, or, with neither, being JSON at all."""
    if pattern is not None and schema is not None:
        raise ConfigurationError("format_adherence takes a pattern or a schema, not both")
    if pattern is not None:
        return Regex(pattern=pattern, mode="fullmatch", name="format_adherence")
    if schema is not None:
        return JsonSchema(schema=schema, fenced=fenced, name="format_adherence")
    return Function(is_json, name="format_adherence", scale=Scale(), fenced=fenced)


ENTRIES: tuple[Entry, ...] = (
    *_JSON_ENTRIES,
    Entry(
        name="regex",
        factory=Regex,
        needs=("response",),
        scale=Scale(),
        source="PolyEval Regex",
        description="Does the answer match the regular expression?",
        example='get_evaluator("regex", pattern=r"\\d{4}")',
    ),
    Entry(
        name="format_adherence",
        factory=_format_adherence,
        needs=("response",),
        scale=Scale(),
        source="LangSmith-style format check",
        description="Is the answer in the expected format: JSON, a schema, or a pattern as a whole?",
        example='get_evaluator("format_adherence", pattern=r"\\d+ (EUR|USD)")',
    ),
)
