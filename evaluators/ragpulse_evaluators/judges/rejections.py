"""Replies of servers other than 200: what they refuse, whether it passes, and how long to wait."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ragpulse_evaluators.errors import ContextTooLong, JudgeError, JudgeRejected

_TOO_LONG = re.compile(
    r"context[_ ]?(?:length|size|window)|(?:prompt|input) is too long|too many (?:input )?tokens|reduce the length"
    r"|token count .{0,40}exceeds|maximum prompt length|max_new_tokens` must be|request too large",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    r"(?:context (?:length|size|window)\D{1,20}|prompt length is |tokens allowed \(|must be <= |n_ctx\"?\s*:\s*|>\s*)"
    r"(\d{3,})|(\d{3,}) maximum context",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content[_ ]?filter|content[_ ]?polic|content management policy|usage guidelines|ResponsibleAI"
    r"|Data_?Inspection_?Fail|invalid_prompt|prohibited_content|safety[ _](?:system|filter|setting|check|guard)"
    r"|moderation|flagged|inappropriate content|guardrail|content exists risk|high risk|censorship|RiskDetection"
    r"|(?:content|prompt|input|text|output)\w* (?:was |is )?(?:blocked|unsafe|not safe)|is not safe|illegal content"
    r"|jailbreak|policy[ _]violation|violates? .{0,30}polic|block_?reason|敏感|违规|审核不通过"
    r"|[\"']code[\"']\s*:\s*[\"']?1301\b",
    re.IGNORECASE,
)
_SENSITIVE = re.compile(
    r"new_sensitive|sensitive[_ ]?(?:word|content|info)|(?:input|prompt|content|text)\S* (?:is|contains) sensitive",
    re.I,
)
"""Filters that some providers answer as a failure of the server."""
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_AGAIN = re.compile(
    r"(?:retry|try again) (?:in|after) (?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)(ms|s))?", re.IGNORECASE
)
_AGES_S = 86_400.0
"""Longer waits are as good as none that is known."""
_WAIT = frozenset({408, 409, 425, 429})
"""Client errors that pass: timeouts, conflicts, throttling."""
_PARAM = re.compile(r"[\"'](?:param[\"']\s*:|body[\"'],)\s*[\"']([a-z_]+)")
"""The parameter that an error names: OpenAI's `error.param`, or the `loc` of a server made with FastAPI."""


class Rejection(Exception):
    """A reply other than 200: status, text, and what the server says about waiting (the `Retry-After` header)."""

    def __init__(self, status: int, text: str, retry_after: str | None = None) -> None:
        super().__init__(f"status {status}: {' '.join(text.split())[:200]}")
        self.status, self.text, self.retry_after = status, text, retry_after

    @property
    def filtered(self) -> bool:
        """Whether a content filter refused the question."""
        refuses = self.status in (200, 400, 403, 422, 451) and _FILTERED.search(self.text)
        return bool(refuses or (self.status not in _WAIT and _SENSITIVE.search(self.text)))

    @property
    def param(self) -> str | None:
        """The parameter that is refused, where the error names it as such."""
        match = _PARAM.search(self.text)
        return match[1] if match else None

    @property
    def reason(self) -> tuple[int, str]:
        """Status and text without numbers and ids: equal for two requests that are refused for the same reason."""
        return self.status, re.sub(r"\S*\d\S*", "", self.text)

    @property
    def too_long(self) -> bool:
        """Whether the question exceeds the model's window."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.text))

    @property
    def window(self) -> int | None:
        """The model's window in tokens, where the text names it."""
        match = _WINDOW.search(self.text)
        return int(match[1] or match[2]) if match else None

    def error(self, where: str) -> JudgeError:
        """The error to raise: final where the same request would fail again."""
        message = f"{where}: {self}"
        if self.too_long:
            return ContextTooLong(message, window=self.window)
        passes = self.status >= 500 or self.status in _WAIT
        wait_s = _seconds(self.retry_after) or _named_wait(self.text)
        if not passes or (self.status == 429 and wait_s is None and _QUOTA.search(self.text)):
            return JudgeRejected(message)
        timed_out = self.status in (408, 504)  # the model may have answered into the void
        return JudgeError(message, retry_after_s=wait_s, maybe_billed=timed_out)


def _named_wait(text: str) -> float | None:
    """Seconds to wait as a message names them: "Please try again in 1m20.5s"."""
    match = _AGAIN.search(text)
    if not match or not (match[1] or match[2]):
        return None
    return 60.0 * int(match[1] or 0) + float(match[2] or 0) * (0.001 if match[3] == "ms" else 1.0)


def _seconds(header: str | None) -> float | None:
    """`Retry-After` in seconds, at most `_AGES_S`: a number or an HTTP date; None where it is neither."""
    with suppress(ValueError, TypeError, OverflowError):
        try:
            seconds = float(header or "")
        except ValueError:
            seconds = (parsedate_to_datetime(header or "") - datetime.now(UTC)).total_seconds()
        return None if math.isnan(seconds) else min(max(0.0, seconds), _AGES_S)
    return None
