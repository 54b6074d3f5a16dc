"""Does the answer match a regular expression, within a time limit."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.result import Outcome

if TYPE_CHECKING:
    import regex

__all__ = ("ENTRIES", "Regex")

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
        told = None if found is None else f"matched {found[0][:60]!r}"
        return Outcome(score=float(found is not None), passing=found is not None, explanation=told)

    def _of_case(self, pattern: str) -> regex.Pattern[str]:
        try:
            return _compiled(pattern, self._ignore_case)
        except ConfigurationError as wrong:
            raise Unreadable(str(wrong)) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    import regex

    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as wrong:
        raise ConfigurationError(f"not a regular expression: {wrong}") from None


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
)
