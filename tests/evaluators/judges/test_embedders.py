"""Embedders: litellm's over a loopback server, the offline one where it is installed."""

from typing import Any

import pytest

from ragpulse_evaluators.errors import JudgeError, Unreadable
from ragpulse_evaluators.judges.protocol import OfflineEmbedder, cosine
from ragpulse_evaluators.judges.providers import LLMEmbedder, as_embedder


@pytest.mark.filterwarnings("default")  # litellm's own warnings are not ours to fix
async def test_texts_are_embedded_through_litellm_in_order(chat_server: Any) -> None:
    """Rows are put back in order; a failing provider is a JudgeError."""

    def answer(body: dict[str, Any]) -> Any:
        rows = [{"object": "embedding", "index": i, "embedding": [float(i), 1.0]} for i in range(len(body["input"]))]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        listed = {"object": "list", "model": "e", "data": rows[::-1], "usage": usage}
        return listed if body["input"] != ["fail"] else (500, '{"error": {"message": "boom"}}')

    server = await chat_server(answer)
    embedder = LLMEmbedder("tiny", api_base=server.base)
    assert await embedder.embed(["a", "b"]) == [[0.0, 1.0], [1.0, 1.0]]
    with pytest.raises(JudgeError, match="openai/tiny"):
        await embedder.embed(["fail"])


async def test_the_offline_model_knows_what_is_near() -> None:
    """Weights and tokenizer come out of the wheel, without network."""
    pytest.importorskip("wordllama", reason="the extra [semantic] is not installed")
    near, query, far = await OfflineEmbedder().embed(["it opens at 9 o'clock", "it opens at nine", "bread is baked"])
    assert cosine(query, near) > cosine(query, far)


def test_names_become_embedders_and_zero_vectors_have_no_direction() -> None:
    """A name is litellm's, but for the offline one; a cosine with nothing is unreadable."""
    assert isinstance(as_embedder("wordllama"), OfflineEmbedder)
    assert isinstance(as_embedder("text-embedding-3-small"), LLMEmbedder)
    assert as_embedder(None) is None
    with pytest.raises(Unreadable):
        cosine([0.0], [1.0])
