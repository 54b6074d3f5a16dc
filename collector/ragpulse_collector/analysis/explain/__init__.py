"""The requests behind a chart: what differs between a selected box and the rest, and the worst and best of a bucket."""

from ragpulse_collector.analysis.explain.marked import explain
from ragpulse_collector.analysis.explain.requests import column_of, exemplars

__all__ = ["column_of", "exemplars", "explain"]
