"""Topics and content gaps of the made-up day."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ragpulse_collector.analysis.quality import Measured

from .fake_day import NOW, TOPICS, UNITS, hexid, iso
from .fake_figures import FakeFigures


def share(value: float, half: float = 0.02) -> dict[str, Any]:
    """A share with its interval."""
    return {"value": value, "lo": max(0.0, value - half), "hi": value + half}


class FakeTopics(FakeFigures):
    """A topic for each question of the day; the first one is asked for and not answered."""

    topics_problem: str | None = None
    """Why there are no topics."""
    quoted: str | None = None
    """Who quotes the name that a topic had."""

    def get_topics(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The topics by answers lost, and `other`."""
        named = [(question, path.partition("/")[0]) for question, _, path in TOPICS]
        listed = [] if self.empty or self.topics_problem else [*named, (None, "other")]
        fit = {"fitted_at": iso(NOW - timedelta(days=3)), "topics": 3, "questions": 900, "other": 80}
        return {
            "fit": None if self.empty else {**fit, "assigned_from": None},
            "running": False, "problem": self.topics_problem, "evaluator": "groundedness", "n": 900 * bool(listed),
            "unassigned": 12, "more": 0, "appeared": ["plans"], "vanished": ["fax"], "grew": ["plans"],
            "topics": [self._topic(number, question, name) for number, (question, name) in enumerate(listed)],
        }  # fmt: skip

    def _topic(self, number: int, question: str | None, name: str) -> dict[str, Any]:
        overview = self.get_overview({})["quality"][0]
        quality = {field: overview[field] for field in Measured.__dataclass_fields__ if field in overview}
        return {
            "topic_id": number + 1 if question else None, "name": f"{name} {number}" if question else name,
            "named_by": None, "question": question, "terms": [name, "how"], "n": 300 - 40 * number,
            "share": share(0.3 - 0.04 * number), "change": share(0.05 - 0.02 * number), "change_p": 0.01 + 0.2 * number,
            "quality": quality, "unanswered": share(0.6 / (1 + number)),
            "failure": 0.5 / (1 + number), "lost": 0.15 / (1 + number), "worse_p": 0.01, "worse": number == 0,
            "cost_usd": 0.002, "latency_p95": 2100.0, "thumbs": share(0.7), "worst": self.get_traces({})["traces"][:3],
        }  # fmt: skip

    def put_topics_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A topic under its new name."""
        return {"topic_id": int(name), "name": params["name"], "note": self.quoted}

    def post_topics_one(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A fit that begins."""
        return {"running": True, "problem": None}

    def get_gaps(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Two gaps, a document that nothing finds, and a pair."""
        question = TOPICS[1][0]
        text = f"4.0 % of questions ask `{question}`; 62 % unanswered; nearest document kb/sso.md (never used)"
        gap = {
            "question": question, "terms": ["sign-on", "team"], "users": 12, "share": share(0.04),
            "failing": share(0.62, 0.1), "nearest": {"id": "kb/sso.md", "used_share": 0.0}, "text": text,
            "trace_ids": [hexid(f"trace{number}", 32) for number in range(5)],
            "issue": f"### Missing content: sign-on, team\n\n{text}.\n",
        }  # fmt: skip
        listed = [] if self.empty else [gap | {"kind": "unanswered"}, gap | {"kind": "ungrounded"}]
        old = {"id": "kb/fax.md", "retrieved": 31, "last_seen": iso(NOW - timedelta(days=9))}
        pair = {"ids": ["kb/a.md", "kb/b.md"], "questions": 25, "share": 0.8}
        return {
            "gaps": listed, "questions": len(UNITS),
            "collection": {"unretrieved": [old] * bool(listed), "competing": [pair] * bool(listed)},
        }  # fmt: skip
