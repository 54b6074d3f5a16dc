"""Texts to vectors: the protocol of embedders, and the embedder that works offline."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ragpulse_evaluators.errors import ConfigurationError, Unreadable

__all__ = ("Embedder", "OfflineEmbedder", "SyncEmbedder", "cosine")


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors of equal length."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order; raises `JudgeError` when it cannot embed them."""


class OfflineEmbedder:
    """Word vectors shipped inside the wordllama wheel (`ragpulse[semantic]`): no network, no key.

    Word order does not count: two sentences of the same words have equal vectors.
    """

    id = "wordllama"

    def __init__(self) -> None:
        self._model: Any = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Mean word vectors; the weights (19 MB) are read at the first call."""
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        if self._model is None:
            self._model = _wordllama()
        return [[float(value) for value in vector] for vector in self._model.embed(texts)]


class SyncEmbedder:
    """An embedder whose `embed` is a plain function, as sentence-transformers users write it: runs in a thread."""

    def __init__(self, embedder: Any) -> None:
        self.id = str(getattr(embedder, "id", type(embedder).__qualname__))
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text; rows of an array are read as numbers."""
        vectors = await asyncio.to_thread(self._embedder.embed, list(texts))
        rows = await vectors if inspect.isawaitable(vectors) else vectors
        return [[float(value) for value in row] for row in rows]


def _wordllama() -> Any:
    """The model from the wheel itself: given as its own cache, the package finds the tokenizer it ships."""
    try:
        import wordllama
    except ImportError as missing:
        raise ConfigurationError("the offline embedder needs wordllama: pip install 'ragpulse[semantic]'") from missing
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine of two vectors in -1..1; a vector of zeros has no direction and raises `Unreadable`."""
    norm = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if not norm:
        raise Unreadable("an embedding is a vector of zeros")
    return max(-1.0, min(1.0, math.fsum(x * y for x, y in zip(left, right, strict=True)) / norm))
