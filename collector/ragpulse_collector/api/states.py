"""Answers about running components: the collector, evaluators, rules, replays, judges, monitors."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.api.answers import Answer, Done


class Monitors(Answer):
    """Monitors with state and history, and the names of the destinations for their messages."""

    monitors: list[dict[str, Any]]
    destinations: list[str]


class MonitorPreview(Answer):
    """The alerts that a monitor would have sent in the last days, and the change that it can detect."""

    days: int
    would_have_fired: int
    firings: list[dict[str, Any]]
    detects: str | None


class MonitorSaved(Answer):
    """A stored monitor."""

    name: str
    metric: str
    condition: str


class AlertSent(Done):
    """Whether a test alert was delivered."""

    delivery: Any
