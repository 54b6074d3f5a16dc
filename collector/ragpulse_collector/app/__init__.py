"""The composition root: every part made and joined, by plain constructor calls.

settings ─▶ Collector: socket, store, listening ─▶ parts: sampler, worker, replays, monitors, operations ─▶ web
"""

from ragpulse_collector.app.collector import Collector

__all__ = ["Collector"]
