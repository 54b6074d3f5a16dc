"""Labelled negatives from one's own answers: `perturb` copies each case with one small edit that makes it wrong."""

from ragpulse_evaluators.grounding.perturb.copies import KINDS, EditKind, LabelledCase, perturb

__all__ = ("KINDS", "EditKind", "LabelledCase", "perturb")
