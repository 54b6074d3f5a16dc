"""Judges judged: against people (`calibrate`), against unit tests (`meta_evaluate`), aligned by examples (`align`)."""

from __future__ import annotations

from ragpulse_evaluators.meta.alignment import AlignmentReport, align
from ragpulse_evaluators.meta.calibration import (
    CalibrationReport,
    Consistency,
    LengthBias,
    PositionBias,
    calibrate,
    length_bias,
    position_bias,
    self_consistency,
)
from ragpulse_evaluators.meta.evaluation import (
    FAILURE_MODES,
    Check,
    MetaReport,
    UnitTest,
    builtin_tests,
    meta_evaluate,
    read_tests,
    satisfies,
)

__all__ = (
    "FAILURE_MODES",
    "AlignmentReport",
    "CalibrationReport",
    "Check",
    "Consistency",
    "LengthBias",
    "MetaReport",
    "PositionBias",
    "UnitTest",
    "align",
    "builtin_tests",
    "calibrate",
    "length_bias",
    "meta_evaluate",
    "position_bias",
    "read_tests",
    "satisfies",
    "self_consistency",
)
