"""Judges and embedders from their names."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

from ragpulse_evaluators.judges.embedders import Embedder, OfflineEmbedder, SyncEmbedder
from ragpulse_evaluators.judges.http import HTTPJudge
from ragpulse_evaluators.judges.litellm import LLMEmbedder, LLMJudge
from ragpulse_evaluators.judges.protocol import Judge

__all__ = ("as_embedder", "as_judge")


def as_judge(judge: str | Judge | None, **access: Any) -> Judge | None:
    """A judge from a name: `provider/model` for litellm, `http://host:port/v1#model` for any compatible server.

    `access` (api_base, api_key, temperature, ...) is passed on. Without litellm, a model behind an `api_base` is asked
    over HTTP.
    """
    if judge is None or not isinstance(judge, str):
        return judge
    if judge.startswith(("http://", "https://")):
        base, _, model = judge.partition("#")
        return HTTPJudge(base, model or "default", **access)
    if access.get("api_base") and importlib.util.find_spec("litellm") is None:
        base = access.pop("api_base")
        return HTTPJudge(base, judge.rpartition("/")[2], **access)
    return LLMJudge(judge, **access)


def as_embedder(embedder: Any) -> Embedder | None:
    """An embedder from the name of a litellm model, from "wordllama" (offline), or the object itself.

    An object whose `embed` is a plain function is called in a thread.
    """
    if embedder is None or not isinstance(embedder, str):
        return embedder if embedder is None or inspect.iscoroutinefunction(embedder.embed) else SyncEmbedder(embedder)
    return OfflineEmbedder() if embedder == OfflineEmbedder.id else LLMEmbedder(embedder)
