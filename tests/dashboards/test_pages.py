"""What holds for every page, without a browser: what a person without JavaScript, or a test, can read."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_collector.api.headers import CONTENT_SECURITY_POLICY
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.words.figures import by_unit, estimate, interval
from ragpulse_dashboards import routes

from .fake_api import FakeApi
from .fake_day import hexid
from .reading import client, text_of
from .test_browser import PAGES


class Broken(FakeApi):
    """A collector that fails in a way nobody foresaw."""

    async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
        raise RuntimeError(f"{operation} of /secret/file.duckdb")


@pytest.mark.parametrize("path", ["/", "/sessions", "/alerts"])
def test_a_failure_that_nobody_foresaw_is_a_page(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reason is in the log, not on the page."""
    answer = client(Broken()).get(path)
    assert answer.status_code == 500
    assert "That did not work The collector failed to answer; its log has the reason." in text_of(answer.text)
    assert answer.text.rstrip().endswith("</html>")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_the_address_of_a_form_is_no_blank_page() -> None:
    """For a person; a program is answered by the application."""
    answer = client().get("/demo/remove", headers={"accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "A form is sent to this address; there is no page to look at." in text_of(answer.text)
    assert "<html" not in client().get("/demo/remove").text


@pytest.mark.parametrize(
    ("path", "lists"), [("/users/nobody-", "sessions"), ("/datasets/none-", "datasets"), ("/traces/zz", "traces")]
)
def test_what_is_not_there_leads_to_the_list(path: str, lists: str) -> None:
    """A page that does not exist says so in a sentence, with a way on."""
    answer = client(FakeApi(empty=True)).get(path)
    assert answer.status_code == 404
    assert f'href="/{lists}">{lists.capitalize()}</a>' in answer.text
    (said,) = re.findall(r"<h1>Not found</h1>\s*<p>(.*?)</p>", answer.text, re.DOTALL)
    assert (said[0], said[-1]) == (said[0].upper(), ".")


def test_no_text_is_turned_round() -> None:
    """What forces a direction is shown as a sign, in contexts, answers and JSON as in titles."""
    pages = client(FakeApi(hostile=True))
    for path in PAGES:
        html = pages.get(path).text
        assert not {"\u202d", "\u202e"} & set(html), path


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(0.4, 0.5, "0.45 ± 0.05"), (0.494, 0.502, "0.498 ± 0.004"), (0.5, 0.5, "0.50 (0.50-0.50)")],
)
def test_a_narrow_interval_is_not_shown_as_none(low: float, high: float, shown: str) -> None:
    """A third digit where two would say that nothing is uncertain."""
    told = estimate({"value": (low + high) / 2, "lo": low, "hi": high})
    assert told.replace("\u00a0", " ") == shown


def test_an_interval_below_the_smallest_share_is_said_once() -> None:
    """Not `0 %–< 0.1 %`."""
    assert interval(0, 0.0004, "share").replace("\u00a0", " ") == "< 0.1 %"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0096, "$0.0096"), (0.01, "$0.010"), (0.4567, "$0.46"), (1.234, "$1.23"), (4.2e-7, "$0.00000042")],
)
def test_money_keeps_two_digits_below_a_dollar(value: float, shown: str) -> None:
    """An interval's ends and its middle are told apart."""
    assert by_unit(value, "USD") == shown


@pytest.mark.parametrize("path", ["/traces", "/", "/explain"])
def test_a_bad_condition_keeps_its_text(path: str) -> None:
    """Each page says what is wrong beside the field that still holds what was typed."""

    class Refusing(FakeApi):
        async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
            if params.get("where"):
                raise Invalid("where: unexpected 'and'")
            return await super().__call__(operation, params)

    response = client(Refusing()).get(f"{path}?where=latency_ms+>+and&model=gpt-5-mini")
    assert response.status_code == 400
    assert 'name="where" value="latency_ms &gt; and"' in response.text
    assert "unexpected 'and'" in text_of(response.text)
    assert 'name="model" value="gpt-5-mini"' in response.text


@pytest.mark.parametrize(("needs_key", "words"), [(True, "asks for a key"), (False, "listens only on this computer")])
def test_the_login_knows_whether_a_key_is_needed(needs_key: bool, words: str) -> None:
    """On loopback nobody is sent for a key that is not asked for."""
    pages = TestClient(Starlette(routes=routes(FakeApi(), needs_key=needs_key)))
    assert words in text_of(pages.get("/login").text)


def test_every_page_carries_the_policy_and_no_inline_code() -> None:
    """The policy forbids inline code, and the pages have none to forbid."""
    response = client().get("/")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert not re.search(r"\sstyle=|<style|\son\w+=|<script(?![^>]*\ssrc=)", response.text)


def test_a_missing_page_has_words_for_people_only() -> None:
    """An address that is none of ours leads a person on; a program gets its line."""
    page = client().get("/nothing/here", headers={"accept": "text/html"})
    assert (page.status_code, "Overview" in page.text) == (404, True)
    assert client().get("/nothing/here", headers={"accept": "application/json"}).text == "Not Found"


@pytest.mark.parametrize(
    "path",
    ["/", "/compare?a=prompt:v6&b=prompt:v7", "/compare?a=judge:old&b=judge:new", "/evaluators", "/alerts", "/label",
     "/figures/rows?metric=quality:groundedness&title=Groundedness", f"/replays/{hexid('run1', 16)}"],
)  # fmt: skip
def test_pages_speak_of_answers_and_users_not_of_statistics(path: str) -> None:
    """The estimator's terms stay in docs/statistics.md; versions of an evaluator are neither better nor worse."""
    text = text_of(client().get(path).text)
    assert not re.search(r"n_eff|effective n|Hajek|mSPRT|CUSUM|assisted_by|\bpi\b", text, re.IGNORECASE)
    if "judge:" in path:
        assert "judge:new is stricter than judge:old by" in re.sub(r"[▲▼] ", "", text)
