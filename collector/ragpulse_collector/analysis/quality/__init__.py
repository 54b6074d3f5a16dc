"""An evaluator's estimates by group and bucket: what the series, the headline, the gate and the monitors read."""

from ragpulse_collector.analysis.quality.buckets import (
    NO_POINT,
    Bucket,
    Missing,
    current,
    in_words,
    move_point,
    point,
    version_markers,
)
from ragpulse_collector.analysis.quality.reading import estimates, estimates_and_whole

__all__ = [
    "NO_POINT",
    "Bucket",
    "Missing",
    "current",
    "estimates",
    "estimates_and_whole",
    "in_words",
    "move_point",
    "point",
    "version_markers",
]
