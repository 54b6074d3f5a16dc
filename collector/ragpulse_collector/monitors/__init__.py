"""Watches metrics and tells people: a stated false-alarm rate, hysteresis, signed messages.

settings ─▶ condition ── measure (one window, or buckets against a baseline) ─▶ decide ─▶ raw.monitor_states ─▶ alert
"""

from ragpulse_collector.monitors.monitors import Monitors

__all__ = ["Monitors"]
