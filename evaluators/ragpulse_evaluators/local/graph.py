"""A loaded model: texts become encodings, encodings become probabilities that the contexts support what is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpulse_evaluators.errors import ConfigurationError, Unreadable, excerpt
from ragpulse_evaluators.local.folder import ModelFolder

_BATCH_TOKENS = 2048
"""Tokens of one batch, padding included: it bounds memory."""
_FEEDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Input of a graph → the attribute of an encoding."""


class Graph:
    """Tokenizer and ONNX session of a model; any number of threads may use it."""

    def __init__(self, folder: ModelFolder) -> None:
        """Raises `ConfigurationError` where a file cannot be read, or is not what the configuration says."""
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._folder = folder
        try:
            self._tokenizer = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
            self._session = onnxruntime.InferenceSession(str(folder.graph), options, ["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - the boundary: both libraries raise classes of their own
            raise ConfigurationError(
                f"{folder.name} cannot be loaded, was it damaged? {excerpt(str(error), 200)}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._feeds = [value.name for value in self._session.get_inputs()]
        if unknown := set(self._feeds).difference(_FEEDS):
            raise ConfigurationError(f"{folder.name}: its graph wants {min(unknown)}, which no text has")

    def encode(self, text: str, pair: str | None = None) -> Any:
        """Return the encoding of one text, or of two."""
        return self._tokenizer.encode(text, pair)

    def probabilities(self, encodings: Sequence[Any]) -> list[Any]:
        """Return for each encoding the probability of *supported*: one number, or one for each token."""
        return [row for batch in _batches(encodings) for row in self._run(batch)]

    def _run(self, encodings: Sequence[Any]) -> Any:
        import numpy

        size = max(map(len, encodings))
        arrays = {}
        for name in self._feeds:
            pad = [self._folder.pad if name == "input_ids" else 0]
            rows = [[*getattr(e, _FEEDS[name]), *pad * (size - len(e))] for e in encodings]
            arrays[name] = numpy.array(rows, dtype=numpy.int64)
        return self._supported(self._session.run(None, arrays)[0].astype(numpy.float64))

    def _supported(self, logits: Any) -> Any:
        """Return the probability of *supported* by logits of shape (batch, [tokens,] labels)."""
        import numpy

        supported, by_token = self._folder.supported, self._folder.kind == "tokens"
        if logits.shape[-1] != len(supported) or logits.ndim != 2 + by_token:
            shape, labels = list(logits.shape[1:]), len(supported)
            raise ConfigurationError(
                f"{self._folder.name}: its graph answers {shape}, its configuration {labels} labels"
            )
        if not numpy.isfinite(logits).all():
            raise Unreadable(f"{self._folder.name} answered with what is no number")
        if len(supported) == 1:
            return 1.0 / (1.0 + numpy.exp(-logits[..., 0].clip(-700, 700)))
        powers = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers[..., numpy.array(supported)].sum(axis=-1) / powers.sum(axis=-1)


def _batches(encodings: Sequence[Any]) -> list[list[Any]]:
    """Cut encodings into batches of at most `_BATCH_TOKENS` padded tokens; windows are even, so little is padding."""
    batches: list[list[Any]] = []
    for encoding in encodings:
        longest = max(map(len, [encoding, *(batches[-1] if batches else ())]))
        if not batches or longest * (len(batches[-1]) + 1) > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(encoding)
    return batches
