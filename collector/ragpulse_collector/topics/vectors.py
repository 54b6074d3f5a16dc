"""Questions as vectors: the mean of static word vectors, of length one. Words outside the vocabulary do not count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ragpulse_collector.refusals import Conflict
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judges.protocol import word_vectors

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Matrix = NDArray[numpy.float32]
    Labels = NDArray[numpy.int64]
    Embed = Callable[[Sequence[str]], Matrix]

MOST_CHARACTERS = 2_000
"""What is read of a question: a pasted document has its question at the beginning, and costs no more than others."""


def static_vectors(texts: Sequence[str]) -> Matrix:
    """Return one vector of length one for each text; zeros where no word is in the vocabulary."""
    embedding = _model()[0].embedding  # refuses where the extra is absent, numpy with it

    import numpy

    means = numpy.zeros((len(texts), embedding.shape[1]), dtype=numpy.float32)
    for row, tokens in enumerate(known_tokens(texts)):
        if tokens:
            means[row] = embedding[tokens].mean(axis=0)
    return unit(means)


def known_tokens(texts: Sequence[str]) -> list[list[int]]:
    """Return the words, and parts of words, of each text that have a vector."""
    model, outside = _model()
    found = model.tokenizer.encode_batch([text[:MOST_CHARACTERS] for text in texts], add_special_tokens=False)
    return [[token for token in tokens.ids if token not in outside] for tokens in found]


def unit(rows: Matrix) -> Matrix:
    """Return the rows with length one; zeros stay zeros."""
    import numpy

    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    directions: Matrix = rows / numpy.maximum(lengths, 1e-9)
    return directions


@lru_cache(maxsize=1)
def _model() -> tuple[Any, frozenset[int]]:
    """Return the model, and its tokens that are no word: bytes of characters it does not have, and spaces."""
    try:
        model = word_vectors()
    except ConfigurationError as missing:
        raise Conflict("topics need word vectors: pip install 'ragpulse[topics]'") from missing
    model.tokenizer.no_padding()
    words = model.tokenizer.get_vocab()
    return model, frozenset(number for word, number in words.items() if not any(map(str.isalnum, _letters(word))))


def _letters(token: str) -> str:
    """Return what a token adds to a text: nothing for a byte (`<0xE8>`) and for `<unk>`."""
    return "" if token.startswith("<") and token.endswith(">") else token
