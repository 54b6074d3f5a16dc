"""Local models: ONNX graphs that read a response against its contexts, on this machine's CPU.

folder (configuration, labels, files) → graph (tokenizer and session: encodings in, probabilities out)
→ reading (windows, marks, best window of each claim) → evaluator (`groundedness_model`)
"""

from __future__ import annotations

from ragpulse_evaluators.local.evaluator import ENTRIES
from ragpulse_evaluators.local.folder import ModelFolder, models_home, open_model

__all__ = ("ENTRIES", "ModelFolder", "models_home", "open_model")
