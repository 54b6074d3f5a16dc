"""Judges and embedders from names."""

import pytest

from ragpulse_evaluators import HTTPJudge, LLMJudge
from ragpulse_evaluators.judges.protocol import is_loopback
from ragpulse_evaluators.judges.providers import as_judge

pytestmark = pytest.mark.filterwarnings("default")  # litellm's own warnings are not ours to fix


def test_names_become_judges() -> None:
    """An address with a fragment is a plain server; anything else goes through litellm; objects stay."""
    plain = as_judge("http://127.0.0.1:8080/v1#llama")
    assert isinstance(plain, HTTPJudge)
    assert plain.model == "llama"
    assert isinstance(as_judge("anthropic/claude"), LLMJudge)
    assert as_judge(plain) is plain
    assert as_judge(None) is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://127.8.9.10", True),
        ("https://example.org/v1", False),
        ("https://127.0.0.1.example.org/v1", False),
        ("http://127.example.org", False),
        (None, False),
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(url: str | None, local: bool) -> None:
    """A host name that begins like a loopback address is another machine: it needs key and budget."""
    assert is_loopback(url) is local
