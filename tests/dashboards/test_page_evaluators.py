"""Evaluators, their rules and judges as HTML, and their forms."""

from typing import Any

import pytest

from ragpulse_collector.api.drafts import RuleDraft
from ragpulse_collector.refusals import Invalid

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_rule_is_saved_paused_and_deleted() -> None:
    """Forms become the rule operations; a rule of the file answers with where to change it."""
    api = FakeApi()
    form = {"name": "mine", "evaluators": "refusal", "rate": "0.2", "where": "error", "stratum_where_0": "error"}
    assert client(api).post("/rules", data={**form, "stratum_rate_0": "1"}).status_code == 303
    strata = [{"where": "error", "rate": "1"}]
    rule = {"name": "mine", "evaluators": ["refusal"], "rate": "0.2", "where": "error", "strata": strata}
    assert api.calls[-1] == ("POST rules", rule)
    assert client(api).post("/rules/judged/pause", data={"x": ""}).status_code == 303
    assert (api.calls[-1][0], api.calls[-1][1]["rate"]) == ("PUT rules/judged", 0.0)
    assert '"/evaluators" data-go="e" aria-current="page"' in client(api).get("/rules/judged/edit").text
    response = client(api).post("/rules/nightly/delete", data={"x": ""})
    assert (response.status_code, "change it there" in response.text) == (409, True)


def test_a_rule_of_the_file_is_shown_and_not_saved() -> None:
    """Its page has the prediction, and no button that would be refused."""
    text = client().get("/rules/nightly/edit").text
    assert "change it there" in text_of(text)
    assert "Save" not in text_of(text)
    assert "Delete rule" not in text_of(text)


@pytest.mark.parametrize("rate", ["", "many", "1.5", "-1", "nan"])
def test_a_rate_that_is_none_is_refused_in_words(rate: str) -> None:
    """The form sends it as it was typed; the operation names the field."""
    api = FakeApi()
    client(api).post("/rules", data={"name": "mine", "evaluators": "refusal", "rate": rate})
    with pytest.raises(Invalid, match="rate"):
        RuleDraft.parse(api.calls[-1][1])


def test_a_new_rule_begins_without_a_warning() -> None:
    """Nothing is predicted, and nothing is wrong, before an evaluator is chosen."""
    new, filled = (client().get(path).text for path in ("/rules/new", "/rules/new?evaluators=groundedness"))
    assert "Choose evaluators to see" in text_of(new)
    assert 'hx-trigger="input' in new
    assert 'hx-trigger="load, input' in filled


def test_evaluators_in_use_stand_apart() -> None:
    """Those that a rule names show what they did; the others only what they need."""
    used, others = client().get("/evaluators").text.split("Other evaluators</h2>")
    assert "evaluator=groundedness&amp;outcome=scored&amp;evaluated_from=-24h" in used
    assert "1,204" in used
    used, _ = used.split("Rules</h2>")
    assert "exact_match" not in used.split("In use")[1]
    runs = used.partition("Runs</abbr>")[2].partition('href="/traces?evaluator=groundedness')[2]
    assert '<td class="num wide-only">2</td>' in runs
    assert "exact_match" in others
    assert "1,204" not in others


@pytest.mark.parametrize(
    ("path", "found", "gone", "nothing"),
    [
        ("/evaluators?find=MATCH", "exact_match", "1,204", "None in use has “MATCH”"),
        ("/settings?find=retention", "retention_days", "max_body_mb", ""),
        ("/settings?find=xyzzy", "As a file", "retention_days", "No setting has “xyzzy”"),
        ("/documents?find=NO-SUCH", "Documents by", "doc1", "No document with “NO-SUCH”"),
    ],
)
def test_lists_are_searched(path: str, found: str, gone: str, nothing: str) -> None:
    """In names, values and texts, whatever the case; a search without a hit says what it looked for."""
    text = text_of(client().get(path).text.partition("As a file")[0] + "As a file")
    assert found in text
    assert gone not in text
    assert nothing in text


def test_a_judge_that_moved_is_told_from_an_application_that_did() -> None:
    """Frozen answers show both moves; they are judged again, and others frozen, by a form."""
    api = FakeApi()
    text = text_of(client(api).get("/evaluators").text)
    assert "firing judge moved" in text
    assert client(api).post("/drift/run", data={"evaluator": "faithfulness"}).status_code == 303
    assert api.calls[-1] == ("POST drift/run", {"evaluator": "faithfulness"})
    assert client(api).post("/drift/forget", data={"evaluator": "faithfulness"}).status_code == 404


@pytest.mark.parametrize(
    ("judge", "words", "missing"),
    [
        ({}, "The judge is good: it tells right answers from wrong ones.", "never checked"),
        ({"judge": "other"}, "The judge is no better than guessing.", "never checked"),
        ({"judge": "new"}, "This judge was never checked. Ask it about 400 labelled answers:", "The judge is"),
        ({"checks": []}, "This judge was never checked. Ask it about 400 labelled answers:", "The judge is"),
        ({"judge": None, "command": None}, "Evaluators", "never checked"),
    ],
)
def test_the_newest_check_of_the_configured_judge_is_shown(judge: dict[str, Any], words: str, missing: str) -> None:
    """Its verdict in words; of a judge without one the command; checks of other judges say nothing about it."""
    api = FakeApi()
    api.judge = judge
    page = client(api).get("/evaluators").text
    assert words in text_of(page)
    assert missing not in text_of(page)
    assert ("ragpulse judge check --judge" in page) == (judge.get("judge", "") is not None)
    assert ('class="problem">The judge' in page) == (judge.get("judge") == "other")


@pytest.mark.parametrize(
    ("running", "error", "words"),
    [
        (True, None, "A check runs: 120 of 360."),
        (False, "<b>no room</b>", "The check stopped: <b>no room</b>."),
        (False, None, "1,000 answers cost"),
        (None, None, "1,000 answers cost"),
    ],
)
def test_a_check_of_the_judge_is_started_and_watched(running: bool | None, error: str | None, words: str) -> None:
    """The button stands beside the command while no check runs; how far one is, or why it stopped, is told."""
    api, state = FakeApi(), {"judge": "openai/gpt-5-mini", "running": running, "done": 120, "n": 360, "error": error}
    api.judge = {"started": None if running is None else state}
    page = client(api).get("/evaluators").text
    assert words in text_of(page)
    assert "<b>" not in page
    assert ("Check now" in page) == (not running)


@pytest.mark.parametrize(("form", "params"), [({"max_usd": " 1.5 "}, {"max_usd": "1.5"}), ({"max_usd": ""}, {})])
def test_a_check_begins_with_its_cap(form: dict[str, str], params: dict[str, str]) -> None:
    """An empty field is no cap."""
    api = FakeApi()
    assert client(api).post("/judge/check", data=form).status_code == 303
    assert api.calls == [("POST judge/check", params)]
