"""Token estimates and cutting."""

from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.judges.protocol import count_tokens, split_text


def test_dense_scripts_count_by_character() -> None:
    """Four Latin letters a token, one Chinese character a token."""
    assert count_tokens("abcdefgh") == 2
    assert count_tokens("图书馆") == 3
    assert count_tokens("") == 0


@given(st.text(alphabet=st.sampled_from("ab 图馆\n")), st.integers(1, 9))
def test_pieces_fit_and_nothing_but_space_is_lost(text: str, limit: int) -> None:
    """Every piece is within the limit; joined without white space they are the text."""
    pieces = split_text(text, limit)
    assert all(count_tokens(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
