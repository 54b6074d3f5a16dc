"""Replays as HTML and their forms."""

import re
from html import unescape

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_started_replay_is_looked_at() -> None:
    """Starting leads to the run's own page; its numbers reach the API as numbers."""
    api = FakeApi()
    form = {"evaluators": "faithfulness", "since": "7d", "limit": "100", "max_usd": "2", "where": "", "judge": "gpt-6"}
    assert all(f'name="{name}"' in client(api).get("/replays").text for name in form)
    response = client(api).post("/replays", data=form)
    assert response.headers["location"].startswith("/replays/")
    numbers = {"limit": 100, "max_usd": 2.0}
    assert api.calls[-1][1] == {"evaluators": ["faithfulness"], "since": "7d", "judge": "gpt-6", **numbers}
    run = response.headers["location"].rpartition("/")[2]
    assert f"/compare?b=run%3A{run}" in unescape(client(api).get(response.headers["location"]).text)
    form = client(api).get(f"/compare?b=run:{run}").text
    assert f'value="run:{run}"' in form
    assert '<option value="faithfulness@' in form


def test_a_replay_leads_on() -> None:
    """What the run changed against the version in use, its worst traces, and a rule that uses it from now on."""
    api = FakeApi()
    run = next(run for run in api.get_replays({})["replays"] if run["status"] == "done")
    html = unescape(client(api).get(f"/replays/{run['run_id']}").text)
    asked = next(params for operation, params in api.calls if operation == "GET compare")
    assert (asked["a"], asked["b"]) == ("faithfulness@a1b2c3d4e5f6", f"run:{run['run_id']}")
    assert "Stricter than faithfulness@a1b2c3d4e5f6" in text_of(html)
    assert "the last sentence is nowhere in the contexts" in html
    assert "/traces?evaluator=faithfulness&sort=worst&from=-7d" in html
    (rule,) = re.findall(r'href="(/rules/new[^"]+)"', html)
    form = client(api).get(rule).text
    assert re.search(r'value="faithfulness" checked', form)


def test_a_replay_by_another_judge_is_compared_with_the_judge_in_use() -> None:
    """A rule would ask the configured judge, so none is offered; the page says what to change instead."""
    api = FakeApi()
    api.runs = {"version": "a1b2c3d4e5f6", "judge": "openai/gpt-6", "current": False}
    run = next(run for run in api.get_replays({})["replays"] if run["status"] == "capped")
    html = unescape(client(api).get(f"/replays/{run['run_id']}").text)
    asked = next(params for operation, params in api.calls if operation == "GET compare")
    assert (asked["a"], asked["b"]) == ("judge:openai/gpt-5-mini", f"run:{run['run_id']}")
    assert "/rules/new" not in html
    assert "set it in ragpulse.toml" in text_of(html)
    assert "Stopped the cap of the replay is 2 USD, 0.0004 left" in text_of(html)
    client(api).post(f"/replays/{run['run_id']}/resume", data={"max_usd": "4"})
    assert api.calls[-1] == (f"POST replays/{run['run_id']}/resume", {"max_usd": 4.0})
