"""Twelve tasks of a person in the pages, in clicks, keys and seconds, over the traffic of `ragpulse demo`.

    python benchmarks/tasks.py [--url URL]

A browser does each task like a person who knows the pages: from the overview, by what is on the screen. A click is a
press of the mouse; typed text is not a click, keys are counted separately. A task ends when its result is on the
screen. Without --url the script starts a collector with the demo. Exit 1 where a task takes too many clicks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from _served import Server

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
CONFTEST = importlib.import_module("dashboards.conftest")
LABELS = 20
PATIENCE_MS = 120_000


class Person:
    """A pointer and a keyboard that count."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = self.keys = 0

    def click(self, role: str, name: str, *, within: str = "body", exact: bool = True) -> None:
        """Press the element with this role and name."""
        self.clicks += 1
        self.page.locator(within).get_by_role(role, name=name, exact=exact).first.click()

    def press(self, selector: str) -> None:
        """Press an element without a name: a menu, the first row of a list."""
        self.clicks += 1
        self.page.locator(selector).first.click()

    def type(self, text: str) -> None:
        """Write into the field that has the focus."""
        self.page.keyboard.insert_text(text)

    def key(self, key: str) -> None:
        """Press one key."""
        self.keys += 1
        self.page.keyboard.press(key)

    def sees(self, text: str) -> None:
        """Wait until a text is on the screen."""
        self.page.locator("main").get_by_text(text).first.wait_for()

    def arrives(self, part: str) -> None:
        """Wait for the page whose URL has this part, with its scripts."""
        self.page.wait_for_url(lambda url: part in url, wait_until="load")
        self.page.locator("html.js").wait_for(state="attached")


def worst_answers(person: Person) -> None:
    person.click("link", "Worst answers", within=".happened")
    person.arrives("sort=worst")


def why_cost_rose(person: Person) -> None:
    person.click("link", "Why? Cost per hour", within="#chart-cost")
    person.arrives("metric=cost_usd")
    person.sees("expensive requests")


def one_version_against_another(person: Person) -> None:
    person.click("link", "Compare")
    person.click("link", "prompt:v1 and prompt:v2")
    person.sees("than prompt:v1")


def document_behind_bad_answers(person: Person) -> None:
    person.click("link", "Why?", within=".happened")
    person.click("link", "What do", exact=False)
    person.sees("legacy-faq-2019.md")


def what_a_user_saw(person: Person) -> None:
    person.press("header [type=search]")
    person.type("user-12")
    person.key("Enter")
    person.arrives("q=user-12")
    person.press(".question a")
    person.sees("user-12")


def share_a_trace(person: Person) -> None:
    person.page.goto(person.page.url.rstrip("/") + "/traces", wait_until="load")
    person.page.locator(".question a").first.click()  # the task begins on the trace
    person.press("summary:has-text('Share')")
    person.click("link", "Copy the link")
    person.page.get_by_text("Copied").first.wait_for()


def label_twenty(person: Person) -> None:
    person.page.goto(person.page.url.rstrip("/") + "/label", wait_until="load")  # the task begins in the queue
    for _ in range(LABELS):
        with person.page.expect_navigation(wait_until="load"):
            person.key("y")
        person.sees("Saved as good")


def replay_last_week(person: Person) -> None:
    person.click("link", "Replays")
    person.click("button", "Start")
    person.arrives("/replays/")
    person.sees("Scored")


def set_an_alert(person: Person) -> None:
    person.click("link", "Alerts")
    person.click("link", "quality below", exact=False)
    person.arrives("/alerts/new")
    person.click("button", "Save")
    person.sees("is watched from now on")


def search_text(person: Person) -> None:
    person.press("header [type=search]")
    person.type("retention")
    person.key("Enter")
    person.arrives("q=retention")
    person.page.locator(".question a").first.wait_for()


def read_a_conversation(person: Person) -> None:
    person.click("link", "Sessions")
    person.press(".question a")
    person.page.locator(".turn").first.wait_for()


def export_the_bad_ones(person: Person) -> None:
    person.click("link", "Worst answers", within=".happened")
    person.click("link", "failing groundedness")
    person.arrives("failing=true")
    person.press("summary:has-text('Keep as dataset')")
    person.page.locator("[name=dataset_name]").focus()
    person.type("bad ones")
    person.key("Enter")
    person.arrives("/datasets/bad%20ones")


@dataclass(frozen=True, slots=True)
class Task:
    """A task, how it is done, and how many clicks (or keys) it may take."""

    name: str
    do: Callable[[Person], None]
    max_clicks: int
    max_keys: int | None = None


TASKS = (
    Task("worst answers of the last day", worst_answers, 1),
    Task("why did cost rise", why_cost_rose, 2),
    Task("v2 against v1", one_version_against_another, 2),
    Task("which document causes bad answers", document_behind_bad_answers, 2),
    Task("what did user-12 see, by search", what_a_user_saw, 2),
    Task("share a trace", share_a_trace, 2),
    Task("label 20 answers", label_twenty, 0, LABELS),
    Task("replay last week", replay_last_week, 3),
    Task("set an alert", set_an_alert, 3),
    Task("search text", search_text, 1),
    Task("read a conversation", read_a_conversation, 2),
    Task("export the bad ones as a dataset", export_the_bad_ones, 3),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Clicks, keys and seconds of a task."""

    task: Task
    clicks: int
    keys: int
    seconds: float

    @property
    def within(self) -> bool:
        """Whether it stayed within its limits."""
        return self.clicks <= self.task.max_clicks and (self.task.max_keys is None or self.keys <= self.task.max_keys)


def perform(browser: Any, base: str, task: Task) -> Result:
    """Do one task from the overview, in a window of its own."""

    def steps(visit: Any) -> Result:
        visit.open("/")
        visit.page.locator("main:not(:has([data-renew]))").wait_for()
        person = Person(visit.page)
        visit.page.set_default_timeout(PATIENCE_MS)
        start = time.perf_counter()
        task.do(person)
        return Result(task, person.clicks, person.keys, time.perf_counter() - start)

    result: Result = browser.visit(base, steps, fresh=True)
    return result


def fill(base: str) -> None:
    """Make the demo's traffic and wait until it is scored."""
    urlopen(Request(f"{base}/api/v1/demo", method="POST", headers={"Content-Type": "application/json"}, data=b"{}"))
    for _ in range(600):
        evaluations = json.load(urlopen(f"{base}/api/v1/status"))["evaluations"]
        if evaluations["done"] >= 1500 and not evaluations["pending"]:
            return
        time.sleep(0.5)
    raise SystemExit("the demo was not evaluated within five minutes")


def main() -> int:
    """Do each task and print its clicks, keys and seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a collector that holds the demo and nothing else")
    parser.add_argument("--task", choices=[task.name for task in TASKS], help="only this one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = None if options.url else Server(Path(folder) / "tasks.duckdb")
        base = f"http://127.0.0.1:{server.port}" if server else options.url
        browser = CONFTEST.Browser()
        try:
            if server:
                fill(base)
            results = [perform(browser, base, task) for task in TASKS if not options.task or task.name == options.task]
        finally:
            browser.close()
            if server:
                server.stop()
    print(f"{'task':<36}{'clicks':>8}{'max':>5}{'keys':>6}{'seconds':>9}")
    for result in results:
        print(
            f"{result.task.name:<36}{result.clicks:>8}{result.task.max_clicks:>5}{result.keys:>6}{result.seconds:>9.1f}"
            f"{'' if result.within else '  too many'}"
        )
    return 0 if all(result.within for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
