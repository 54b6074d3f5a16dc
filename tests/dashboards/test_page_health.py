"""The health of the collector as HTML."""

from collections.abc import Mapping
from typing import Any

import pytest

from .fake_api import FakeApi
from .reading import client, text_of


def test_health_says_how_long_evaluations_wait() -> None:
    """The age of the oldest is beside how many are due; with nothing due there is none; attempts after results."""
    assert "Pending 4 Oldest pending 7 s Results a second 2.5 Backlog done in about 2 s Done" in text_of(
        client().get("/health").text
    )
    assert "of them invalid 2 Failed attempts 4 Dropped" in text_of(client().get("/health").text)
    assert "9 calls have no price. Add it to [prices]." in text_of(client().get("/health").text)
    assert "Oldest pending – Results a second 0 Backlog done in about – Done" in text_of(
        client(FakeApi(empty=True)).get("/health").text
    )


def test_health_says_what_share_a_local_model_keeps_up_with() -> None:
    """By evaluator, and nothing where no local model runs."""
    assert "grounded keeps up with 45 %" in text_of(client().get("/health").text).replace("\xa0", " ")
    assert "keeps up with" not in text_of(client(FakeApi(empty=True)).get("/health").text)


@pytest.mark.parametrize(
    ("evaluations", "words"),
    [
        ({"done_per_s": 90.0, "clears_in_s": 4081.4}, "90 a second are done: done in about 1 h 8 min."),
        (
            {"done_per_s": 9.0, "new_per_s": 12.0, "clears_in_s": None},
            "12 a second are new, so the backlog does not shrink",
        ),
    ],
)
def test_health_is_not_green_with_a_backlog(evaluations: dict[str, object], words: str) -> None:
    """Backlog, rate and when it ends."""

    class Behind(FakeApi):
        def get_status(self, params: Mapping[str, Any]) -> dict[str, Any]:
            status = super().get_status(params)
            behind = {"pending": 367_328, "oldest_s": 9000.0, **evaluations}
            return {**status, "evaluations": {**status["evaluations"], "dropped": {}, **behind}}

    text = text_of(client(Behind()).get("/health").text).replace("\xa0", " ")
    assert "367,328 evaluations pending, the oldest for 2 h 30 min" in text
    assert words in text
    assert "no evaluation is late" not in text


def test_settings_are_shown_with_their_origin() -> None:
    """A default, a variable, the API; the lists that are empty by name; the check beside its judge; the TOML."""
    html = client().get("/settings").text
    text = text_of(html)
    for words in (
        "retention_days 14.0 RAGPULSE_RETENTION_DAYS", "port 4318 default", "Rule judged [[rule]]", "rate 0.05 API",
        "webhook (not shown) ragpulse.toml:20", "None are set: evaluators, monitors, targets.",
        "The judge is good: it tells right answers from wrong ones. Checked", "DuckDB 2.0.0", "/srv/ragpulse.toml",
        "genai-prices 0.2.3, installed 2026-11-26", '[[rule]] name = "nightly"',
    ):  # fmt: skip
        assert words in text
    assert 'href="/settings" data-go="," aria-current="page"' in html.replace("&#34;", '"')
    assert "None are set: evaluators, rules, monitors, destinations, targets." in text_of(
        client(FakeApi(empty=True)).get("/settings").text
    )


def test_a_judge_without_a_check_says_so_beside_its_settings() -> None:
    """With the way to the command."""
    api = FakeApi()
    api.judge = {"checks": []}
    page = client(api).get("/settings").text
    assert 'This judge was never checked. <a href="/evaluators#judge-h">' in page
