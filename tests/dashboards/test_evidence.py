"""Sentences tied to evidence."""

from ragpulse_dashboards.evidence import answer_pieces, context_views, find_sentences

SENTENCES = [
    {
        "text": "A is one.",
        "start": 0,
        "end": 9,
        "supported": True,
        "context": 0,
        "evidence_start": 4,
        "evidence_end": 12,
    },
    {"text": "B is two.", "start": 10, "end": 19, "supported": False, "context": None, "reasons": ["no match"]},
]


def test_pieces_of_an_answer_are_the_answer() -> None:
    """Cutting an answer at its sentences loses no character, and marks the unsupported one."""
    pieces = answer_pieces("A is one. B is two. Bye", SENTENCES)
    assert "".join(piece.text for piece in pieces) == "A is one. B is two. Bye"
    assert [piece.supported for piece in pieces] == [True, None, False, None]
    assert pieces[2].reasons == "no match"


def test_a_sentence_without_offsets_is_found_by_its_text() -> None:
    """Evidence without start and end still lands on its sentence; text that is not there is passed over."""
    pieces = answer_pieces(
        "X. A is one.", [{"text": "A is one.", "supported": True}, {"text": "nowhere", "supported": False}]
    )
    assert [(piece.text, piece.supported) for piece in pieces] == [("X. ", None), ("A is one.", True)]


def test_contexts_know_whether_they_were_used() -> None:
    """Evidence is marked inside its context; a context without supported sentences is unused."""
    first, second = context_views([{"text": "see: A is one, yes"}, {"text": "other"}], SENTENCES)
    assert (first.used, second.used) == (True, False)
    assert [(piece.text, piece.sentences) for piece in first.pieces] == [
        ("see:", ()),
        (" A is on", (0,)),
        ("e, yes", ()),
    ]


def test_overlapping_evidence_shares_a_piece() -> None:
    """Two sentences resting on overlapping passages both light the shared part."""
    sentences = [
        {"text": "a", "supported": True, "context": 0, "evidence_start": 0, "evidence_end": 4},
        {"text": "b", "supported": True, "context": 0, "evidence_start": 2, "evidence_end": 6},
    ]
    (view,) = context_views([{"text": "abcdef"}], sentences)
    assert [piece.sentences for piece in view.pieces] == [(0,), (0, 1), (1,)]


def test_without_evidence_nothing_is_claimed() -> None:
    """No score with sentence evidence: plain text, and used is unknown rather than false."""
    assert find_sentences([{"evaluator": "groundedness", "parts": {"sentences": []}}, {"parts": None}]) == []
    assert context_views([{"text": "t"}], [])[0].used is None
    assert answer_pieces("plain", [])[0].text == "plain"
