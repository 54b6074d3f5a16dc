"""What one process at a time does."""

from __future__ import annotations

from datetime import datetime

from ragpulse_collector.app.wiring import retention_cutoff


def test_on_a_lake_retention_takes_whole_days() -> None:
    """Nothing goes early, and no day's file is left that was deleted in part; a file is cut to the second."""
    now = datetime(2026, 3, 31, 17, 45, 12)
    assert retention_cutoff(now, days=30, whole_days=False) == datetime(2026, 3, 1, 17, 45, 12)
    assert retention_cutoff(now, days=30, whole_days=True) == datetime(2026, 3, 1)
