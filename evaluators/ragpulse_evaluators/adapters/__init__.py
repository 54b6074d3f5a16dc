"""Evaluators of other packages under our contract, where those packages are installed."""

from ragpulse_evaluators.adapters.foreign import adapt

__all__ = ("adapt",)
