"""The composition root: every part made and joined, by plain constructor calls.

settings ─▶ Collector: store, sampler, worker, replays, monitors, operations, ASGI ─▶ serve (uvicorn)
"""

from ragpulse_collector.app.collector import Collector
from ragpulse_collector.app.offline import offline, working_on
from ragpulse_collector.app.serve import serve

__all__ = ["Collector", "offline", "serve", "working_on"]
