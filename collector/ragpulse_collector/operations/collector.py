"""The collector itself: its status and its settings."""

from __future__ import annotations

from collections.abc import Callable

from ragpulse_collector.api.health import CollectorStatus
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.shown_settings import ShownSettings, shown_settings
from ragpulse_collector.api.status import Status
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices

InForce = Callable[[], Settings]
"""Returns the settings in force, with the rules and monitors of the API."""


@operation("GET status", command="status")
def status(of: Status, /) -> CollectorStatus:
    """Received, rejected, evaluated and dropped, with reasons."""
    return of()


@operation("GET settings")
def settings(in_force: InForce, prices: Prices, /) -> ShownSettings:
    """The settings in force, where each was given, and TOML that gives them; without secrets."""
    return shown_settings(in_force(), prices.table.about())
