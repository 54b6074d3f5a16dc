"""Monitors watch metrics and notify people: a stated false-alarm rate, hysteresis, signed messages.

settings ─▶ condition ── measure (one window, or buckets against a baseline) ─▶ decide ─▶ stored state ─▶ notification
"""

from ragpulse_collector.monitoring.definitions import log_changed_meanings
from ragpulse_collector.monitoring.measure import Targets
from ragpulse_collector.monitoring.monitors import Monitors

__all__ = ["Monitors", "Targets", "log_changed_meanings"]
