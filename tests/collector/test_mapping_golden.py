"""5,000 generated spans of every dialect become what they became in version 0.1, in either encoding."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from golden_mapping import golden, outcome
from wire_support import JSON, PROTOBUF, as_protobuf

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody

RECORDED = golden()


@pytest.mark.parametrize("number", range(len(RECORDED)))
@pytest.mark.parametrize("encoding", [JSON, PROTOBUF])
def test_a_body_maps_as_recorded(number: int, encoding: Any) -> None:
    """Every field of every span, its contexts, its price, what stays in the raw attributes, and the scores."""
    recorded = dict(RECORDED[number])
    body = orjson.dumps(recorded.pop("body"))
    sent = as_protobuf(body) if encoding == PROTOBUF else body
    found = outcome(decode(RawBody(signal="traces", content_type=encoding, body=sent)))
    for was, now in zip(recorded["spans"], found["spans"], strict=True):
        assert _text(now) == _text(was)
    assert _text(found) == _text(recorded)


def _text(value: Any) -> str:
    """Return JSON text: 1, 1.0 and true are not the same."""
    return json.dumps(value, sort_keys=True)
