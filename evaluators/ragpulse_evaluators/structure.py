"""Does the answer keep a form: JSON, the right JSON, a schema, a regular expression within a time limit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, Unreadable, excerpt
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.matching import References, form_of, nonempty_references

if TYPE_CHECKING:
    import regex
    from jsonschema.protocols import Validator

_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


def json_value(text: str, *, fenced: bool = False) -> Any:
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
        json_value(response, fenced=fenced)
    except ValueError as error:
        return _failed(str(error))
    return Outcome(score=1.0, passing=True)


def json_match(response: str, reference: References, *, fenced: bool = False, nfc: bool = True) -> Outcome:
    """True where the answer is the same JSON value as a reference; types count, key order and layout do not.

    null equals null, 1 equals 1.0, true does not equal 1. The explanation names the first difference. `Unreadable`
    where a reference is itself no JSON. `nfc=False` keeps apart texts that differ in their Unicode form only.
    """
    form = form_of(nfc)
    try:
        answer = json_value(response, fenced=fenced)
    except ValueError as error:
        return _failed(f"the answer is no JSON: {error}")
    try:
        answer = _texts_as(form, answer)
        references = (_texts_as(form, _read_reference(text)) for text in nonempty_references(reference))
        differences = [difference(answer, value) for value in references]
    except RecursionError:
        raise Unreadable("nested too deeply to be compared") from None
    if None in differences:
        return Outcome(score=1.0, passing=True)
    return _failed(differences[0] or "")


def _texts_as(form: Callable[[str], str], value: Any) -> Any:
    """The JSON value with every text and key in this form."""
    if isinstance(value, dict):
        return {form(key): _texts_as(form, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts_as(form, item) for item in value]
    return form(value) if isinstance(value, str) else value


def _read_reference(text: str) -> Any:
    try:
        return json_value(text)
    except ValueError as error:
        raise Unreadable(f"the reference is no JSON: {error}") from None


def _failed(why: str) -> Outcome:
    return Outcome(score=0.0, passing=False, explanation=why)


def difference(answer: Any, reference: Any, path: str = "$") -> str | None:
    """The first place where two JSON values differ, in words; None where they are equal."""
    if isinstance(answer, dict) and isinstance(reference, dict):
        for key in sorted(answer.keys() ^ reference.keys()):
            return f"{path}.{key} is missing" if key in reference else f"{path}.{key} is not wanted"
        pairs = [(f".{key}", answer[key], reference[key]) for key in reference]
    elif isinstance(answer, list) and isinstance(reference, list):
        if len(answer) != len(reference):
            return f"{path} has {len(answer)} items, not {len(reference)}"
        pairs = [(f"[{i}]", left, right) for i, (left, right) in enumerate(zip(answer, reference, strict=True))]
    else:
        same = _kind(answer) is _kind(reference) and answer == reference
        return None if same else f"{path} is {_short(answer)}, not {_short(reference)}"
    return next((text for part, left, right in pairs if (text := difference(left, right, path + part))), None)


def _kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _short(value: Any) -> str:
    return excerpt(json.dumps(value, ensure_ascii=False), 60)


class JsonSchema(Evaluator):
    """Does the answer keep a JSON Schema? The schema is checked once, when it is configured.

    Without `schema` each case's reference is the schema. References to other documents are never fetched.
    """

    name = "json_schema"
    needs = frozenset({"response"})
    parser = "json"

    def __init__(
        self, *, schema: Mapping[str, Any] | bool | str | None = None, fenced: bool = False, name: str = "json_schema"
    ) -> None:
        schema = json_value(schema) if isinstance(schema, str) else schema
        super().__init__(schema=schema, fenced=fenced)
        self.name = name
        if schema is None:
            self.needs = frozenset({"response", "reference"})
        self._validator = None if schema is None else _validator(schema)

    async def run(self, case: Any) -> Outcome:
        """Validate; the explanation names the place and the rule that is broken."""
        validator = self._validator or self._of_case(case.references[0])
        try:
            value = json_value(case.response, fenced=self.params["fenced"])
        except ValueError as error:
            return _failed(f"the answer is no JSON: {error}")
        return _verdict(validator, value)

    @staticmethod
    def _of_case(text: str) -> Validator:
        try:
            return _validator(_read_reference(text))
        except ConfigurationError as error:
            raise Unreadable(str(error)) from None


def _validator(schema: Any) -> Validator:
    from jsonschema import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from jsonschema_specifications import REGISTRY

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(f"not a JSON Schema: {error.json_path}: {error.message}") from None
    # An explicit registry of the specifications alone: nothing is ever looked up over the network.
    return kind(schema, registry=REGISTRY)


def _verdict(validator: Validator, value: Any) -> Outcome:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        worst = best_match(validator.iter_errors(value))
    except Unresolvable as error:
        raise Unreadable(f"the schema refers to another document: {error}") from None
    return Outcome(score=1.0, passing=True) if worst is None else _failed(f"{worst.json_path}: {worst.message}")


Mode = Literal["search", "match", "fullmatch"]


class Regex(Evaluator):
    """Does the answer match `pattern`? Without one each case's reference is the pattern.

    `mode`: found anywhere (`search`), at the start (`match`, PolyEval's), or as a whole (`fullmatch`). A pattern that
    runs longer than `timeout_s` makes the result invalid instead of stalling the process. A bad pattern is refused
    when it is configured.
    """

    name = "regex"
    needs = frozenset({"response"})
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
        super().__init__(pattern=pattern, mode=mode, ignore_case=ignore_case)
        self.name = name
        if pattern is None:
            self.needs = frozenset({"response", "reference"})
        self._pattern = None if pattern is None else _compiled(pattern, ignore_case)
        self._mode, self._ignore_case, self._timeout_s = mode, ignore_case, timeout_s

    async def run(self, case: Case) -> Outcome:
        """Match; the explanation quotes what was matched."""
        compiled = self._pattern or self._of_case(case.references[0])
        try:
            match: Any = getattr(compiled, self._mode)(case.response, timeout=self._timeout_s)
        except TimeoutError:
            raise Unreadable(f"the pattern took longer than {self._timeout_s:g} s") from None
        explanation = None if match is None else f"matched {match[0][:60]!r}"
        return Outcome(score=float(match is not None), passing=match is not None, explanation=explanation)

    def _of_case(self, pattern: str) -> regex.Pattern[str]:
        try:
            return _compiled(pattern, self._ignore_case)
        except ConfigurationError as error:
            raise Unreadable(str(error)) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    import regex

    if not pattern:
        raise ConfigurationError("an empty regular expression matches every answer: give a pattern")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ConfigurationError(f"not a regular expression: {error}") from None


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


ENTRIES = (
    Entry.of_function(is_json, source="PolyEval", description="Is the answer valid JSON?", options="fenced=True"),
    Entry.of_function(json_match, source="PolyEval", description="Is the answer the same JSON value as the reference?"),
    Entry.of(
        JsonSchema,
        source="PolyEval; JSON Schema",
        description="Is the answer valid under the JSON Schema?",
        options='schema={"type": "object", "required": ["answer"]}',
    ),
    Entry.of(
        Regex,
        source="PolyEval Regex",
        description="Does the answer match the regular expression?",
        options='pattern=r"\\d{4}"',
    ),
    Entry.of(
        _format_adherence(),
        factory=_format_adherence,
        source="LangSmith-style format check",
        description="Is the answer in the expected format: JSON, a schema, or a pattern as a whole?",
        options='pattern=r"\\d+ (EUR|USD)"',
    ),
)
