"""Does the answer match a regular expression, within a time limit, or another given form?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.structure.documents import JsonSchema, is_json

if TYPE_CHECKING:
    import regex

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
