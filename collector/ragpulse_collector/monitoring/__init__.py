"""Monitors watch metrics and notify people: a stated false-alarm rate, hysteresis, signed messages.

settings ─▶ condition ── measure (one window, or buckets against a baseline) ─▶ decide ─▶ stored state ─▶ notification
"""

from ragpulse_collector.monitoring.definitions import log_changed_meanings
from ragpulse_collector.monitoring.monitors import Monitors
from ragpulse_collector.monitoring.targets import Targets

__all__ = ["Monitors", "Targets", "log_changed_meanings"]
