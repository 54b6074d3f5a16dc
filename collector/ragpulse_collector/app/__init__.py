"""The composition root: every component, joined by plain constructor calls.

settings ─▶ Collector: socket, store, listening ─▶ components: sampler, worker, replays, monitors, operations ─▶ web
"""

from ragpulse_collector.app.collector import Collector

__all__ = ["Collector"]
