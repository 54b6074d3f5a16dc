"""Replays as HTML and their forms."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest

from ragpulse_collector.refusals import Invalid

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_started_replay_is_looked_at() -> None:
    """Starting leads to the run's own page; the operation reads its numbers."""
    api = FakeApi()
    form = {"evaluators": "faithfulness", "since": "7d", "limit": "100", "max_usd": "2", "where": "", "judge": "gpt-6"}
    assert all(f'name="{name}"' in client(api).get("/replays").text for name in form)
    response = client(api).post("/replays", data=form)
    assert response.headers["location"].startswith("/replays/")
    numbers = {"limit": "100", "max_usd": "2"}
    assert api.calls[-1][1] == {"evaluators": ["faithfulness"], "since": "7d", "judge": "gpt-6", **numbers}
    run = response.headers["location"].rpartition("/")[2]
    assert f"/compare?b=run%3A{run}" in unescape(client(api).get(response.headers["location"]).text)
    form = client(api).get(f"/compare?b=run:{run}").text
    assert f'value="run:{run}"' in form
    assert '<option value="faithfulness@' in form


def done(api: FakeApi, status: str = "done") -> str:
    """The id of a run."""
    return next(run["run_id"] for run in api.get_replays({})["replays"] if run["status"] == status)


def test_a_replay_has_a_result() -> None:
    """Mean with interval, distribution, what was left out and why, the evaluator in use beside it."""
    api = FakeApi()
    run = done(api)
    html = client(api).get(f"/replays/{run}").text
    text = text_of(html)
    assert (
        "0.742 0.716 to 0.767 · 301 answers of 58 users · 220 of 301 pass · people agree on 79 % of 20 labels" in text
    )
    assert "0.8 to 0.9 48" in text
    assert "4 skipped no contexts" in text
    assert "&lt;b&gt;not JSON" in html
    assert "Stricter than the version in use, on 280 answers with both scores" in text
    assert "They agree on 79 % 71 % to 86 % : both pass 200, both fail 21, only this one fails 50" in text
    assert "0.930 passes all sentences covered 0.210 fails the last sentence is nowhere in the contexts" in text
    assert f"/compare?b=run%3A{run}" in unescape(html)
    assert "a=faithfulness%40a1b2c3d4e5f6" in unescape(html)


@pytest.mark.parametrize(
    ("judge", "name"),
    [
        ("fake temperature=0.0", "by fake"),
        ("openai/gpt-5-mini max_tokens=9 temperature=0.7", "by openai/gpt-5-mini"),
        ("llama temperature=0.0 at 127.0.0.1:8080/v1", "by llama at 127.0.0.1:8080"),
        ("house", "by house"),
        (None, ""),
    ],
)
def test_a_run_has_a_name_that_a_person_reads(judge: str | None, name: str) -> None:
    """Evaluator and judge, in the list and on its page; sampling parameters and addresses' paths are in the API."""
    api = FakeApi()
    api.runs = {"judge": judge, "status": "done"}
    for path in ("/replays", f"/replays/{done(api)}"):
        text = text_of(client(api).get(path).text)
        assert f"faithfulness {name}" in text
        assert "temperature" not in text


def test_a_replay_without_a_judge_offers_one() -> None:
    """Beside its field, with what was typed, for the bill and for the start; judges of earlier runs come first."""

    class Judgeless(FakeApi):
        def post_replays(self, params: Mapping[str, Any]) -> dict[str, Any]:
            if not params.get("judge"):
                raise Invalid(f"{params['evaluators'][0]} needs a judge: name one with --judge")
            if params.get("where") == "no":
                raise Invalid("no such column: no")
            return super().post_replays(params)

    api, form = Judgeless(), {"evaluators": "faithfulness", "since": "7d", "max_usd": "2", "where": "", "judge": " "}
    api.runs = {"judge": "openai/gpt-6 temperature=0.0"}
    started, bill = client(api).post("/replays", data=form), client(api).get("/replays/bill", params=form)
    for answer in (started, bill):
        assert "faithfulness asks a judge, and none is configured. Take openai/gpt-6 or ollama/" in text_of(answer.text)
        assert 'name="judge" value="openai/gpt-6" formmethod="get"' in answer.text
    assert (started.status_code, bill.status_code) == (400, 200)
    assert 'name="max_usd" value="2"' in started.text
    refused = client(api).post("/replays", data=form | {"judge": "m", "where": "no"})
    assert "no such column: no" in text_of(refused.text)
    assert 'name="where" value="no"' in refused.text
    assert "asks a judge" not in refused.text


def test_a_replay_is_exploratory_until_it_is_used() -> None:
    """One button puts it in use, the other sets it aside; in use it leads to a rule that scores new answers."""
    api = FakeApi()
    run = done(api)
    page = client(api).get(f"/replays/{run}")
    assert "no list, chart or alert does" in text_of(page.text)
    assert "/rules/new" not in page.text
    assert f'action="/replays/{run}/use"' in page.text
    client(api).post(f"/replays/{run}/use", data={"max_usd": ""})
    assert (f"POST replays/{run}/use", {}) in api.calls
    api.runs = {"in_use": True}
    page = client(api).get(f"/replays/{run}")
    assert f'action="/replays/{run}/set_aside"' in page.text
    (rule,) = re.findall(r'href="(/rules/new[^"]+)"', unescape(page.text))
    assert re.search(r'value="faithfulness" checked', client(api).get(rule).text)
    client(api).post(f"/replays/{run}/set_aside", data={"max_usd": ""})
    assert (f"POST replays/{run}/set_aside", {}) in api.calls
    assert client(api).post(f"/replays/{run}/other", data={"max_usd": ""}).status_code == 404


def test_a_replay_is_deleted_after_a_question() -> None:
    """The form asks; a running replay is cancelled first."""
    api = FakeApi()
    run = done(api)
    assert 'data-confirm="Delete this replay' in client(api).get(f"/replays/{run}").text
    assert "/delete" not in client(api).get(f"/replays/{done(api, 'running')}").text
    response = client(api).post(f"/replays/{run}/delete")
    assert (response.headers["location"], api.calls[-1]) == ("/replays", (f"DELETE replays/{run}", {}))


def test_evaluators_say_what_they_need_where_they_are_chosen() -> None:
    """A judge, or a reference, which stored traces have not; in the form of a rule as well."""
    for path in ("/replays", "/rules/new"):
        text = text_of(client(FakeApi()).get(path).text)
        assert re.search(r"faithfulness\s* · needs a judge", text), path
        assert not re.search(r"groundedness\s* · needs", text), path
    assert "Stored traces have no references" in text_of(client(FakeApi()).get("/replays").text)


def test_a_replay_by_another_judge_is_compared_with_the_judge_in_use() -> None:
    """A rule would ask the configured judge, so none is offered; the page says what to change instead."""
    api = FakeApi()
    api.runs = {"version": "a1b2c3d4e5f6", "judge": "openai/gpt-6", "current": False, "in_use": True}
    run = done(api, "capped")
    html = unescape(client(api).get(f"/replays/{run}").text)
    assert "a=judge%3Aopenai%2Fgpt-5-mini" in html
    assert "/rules/new" not in html
    assert "set it in ragpulse.toml" in text_of(html)
    assert "Stopped the cap of the replay is 2 USD, 0.0004 left" in text_of(html)
    client(api).post(f"/replays/{run}/resume", data={"max_usd": "4"})
    assert api.calls[-1] == (f"POST replays/{run}/resume", {"max_usd": "4"})
