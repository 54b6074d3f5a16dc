"""Watches metrics and tells people: a stated false-alarm rate, hysteresis, signed messages.

settings ─▶ condition ── measure (one window, or buckets against a baseline) ─▶ decide ─▶ raw.monitor_states ─▶ alert
"""

from ragpulse_collector.monitors.monitors import Monitors
from ragpulse_collector.monitors.targets import Targets

__all__ = ["Monitors", "Targets"]
