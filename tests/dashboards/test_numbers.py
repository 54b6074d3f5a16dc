"""Numbers on the pages of a real store beside SQL of one's own over the public views, found as a reader finds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest
from stored_units import trace_id

from .planted_day import RANGE, pages

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


class Tree(HTMLParser):
    """A page as elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._builder, self._open = ET.TreeBuilder(), list[str]()
        self._builder.start("page", {})
        self.feed(html)
        self._builder.end("page")
        self.root = self._builder.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self._builder.end(tag)
        else:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        self._builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open and (last := self._open.pop()):
            self._builder.end(last)
            if last == tag:
                return

    def handle_data(self, data: str) -> None:
        self._builder.data(data)


def words(element: ET.Element) -> str:
    """The text of an element."""
    return " ".join(" ".join(element.itertext()).split())


Find = Callable[[ET.Element], str]
"""Finds the text with a number on a page."""


def cell(table: str, row: str, column: str, *, tip: bool = False) -> Find:
    """The cell of a table by its label, and the beginnings of its row's and its column's head; or its tooltip."""

    def find(page: ET.Element) -> str:
        (region,) = [one for one in page.iter() if one.get("aria-label") == table]
        heads = [words(head) for head in region.findall(".//thead/tr/th")]
        index = next(number for number, head in enumerate(heads) if head.startswith(column))
        rows = (line for line in region.findall(".//tbody/tr") if any(words(one).startswith(row) for one in line))
        found = list(next(rows))[index]
        return found.get("title", "") if tip else words(found)

    return find


def fact(name: str) -> Find:
    """The description of a term."""

    def find(page: ET.Element) -> str:
        (group,) = [one for one in page.iter("div") if (term := one.find("dt")) is not None and words(term) == name]
        return " ".join(words(one) for one in group.findall("dd"))

    return find


def card(title: str, *, last: bool = False) -> Find:
    """The figure of a chart: of the range, or of its last bucket, which may be in the tooltip."""

    def find(page: ET.Element) -> str:
        (figure,) = [
            one for one in page.iter("figure") if (head := one.find(".//h3")) is not None and words(head) == title
        ]
        (shown,) = [one for one in figure.iter("p") if "now" in one.get("class", "").split()]
        texts = [words(shown), shown.get("title", "")]
        return next(text for text in texts if text.startswith("last bucket ")) if last else texts[0]

    return find


def said(pattern: str) -> Find:
    """What a pattern captures of the text of the page."""

    def find(page: ET.Element) -> str:
        tips = [one.get("title", "") for one in page.iter("p")]
        found = re.search(pattern, " ".join([words(page), *tips]))
        assert found, f"{pattern} is not in {words(page)[:3000]}"
        return found[1]

    return find


_SCALES = {"%": 0.01, "k": 1e3, "M": 1e6, "s": 1e3}
"""Shares as SQL has them, durations in milliseconds."""
_NUMBER = re.compile(r"([-−]?)\$?(\d[\d,]*(?:\.\d+)?)\s?(%|k\b|M\b|s\b)?")


def number_in(text: str) -> tuple[float, float]:
    """The first number of a text, and half of its last digit."""
    found = _NUMBER.search(text)
    assert found, text
    sign, digits, unit = found.groups()
    scale = _SCALES.get(unit, 1.0)
    places = len(digits.partition(".")[2])
    return float(digits.replace(",", "")) * scale * (-1 if sign else 1), 0.5 * 10**-places * scale


T = "(SELECT *, 1 / coalesce(upstream_pi, 1) AS w FROM traces WHERE start_time BETWEEN '2025-03-10' AND '2025-03-11')"
S = "(SELECT *, 1 / pi AS w FROM scores WHERE NOT exploratory AND request_time BETWEEN '2025-03-10' AND '2025-03-11')"
G = f"(SELECT * FROM {S} WHERE evaluator = 'groundedness' AND status = 'ok')"
A = f"(SELECT * FROM {S} WHERE evaluator = 'refusal' AND status = 'ok')"
D = "(SELECT * FROM decisions WHERE latest AND request_time BETWEEN '2025-03-10' AND '2025-03-11')"
LATE = "request_time >= '2025-03-10 22:00'"
GROUNDED = "WHERE evaluator = 'groundedness'"
DIGEST, WEEK = "digest", {"from": "2025-03-10T00:00Z", "to": "2025-03-11T00:00Z", "topic": "returns"}
OVERVIEW, BY_SERVICE = f"/?{RANGE}", f"/?{RANGE}&group_by=service"
WHOLE, COVERED = "Quality in this range", "Evaluation coverage"
TRACE = trace_id(300)
USER = f"(SELECT s.*, t.user_id, t.session_id AS talk FROM {G} s JOIN {T} t USING (trace_id))"
WITH_DOCUMENT = f"(SELECT * FROM {G} WHERE trace_id IN (SELECT trace_id FROM contexts WHERE id = 'doc9'))"
TOPIC = f"(SELECT * FROM {T} WHERE topic = 'returns')"
RUN = "(SELECT * FROM scores WHERE run_id = 'r1')"
PAIRS = f"""(SELECT a.normalized AS a, b.normalized AS b, a.passing AS pa, b.passing AS pb, a.w
             FROM {G} a JOIN {RUN} b USING (trace_id) WHERE a.version = 'v1' AND b.status = 'ok')"""
TALK = "(SELECT *, 1 / coalesce(upstream_pi, 1) AS w FROM traces WHERE session_id = 's7')"
BOTH = f"""(SELECT d.trace_id, 1 / d.pi AS w, g.passing AS supported, a.normalized AS answered
            FROM (SELECT * FROM {D} WHERE evaluator = 'groundedness' AND sampled) d
            LEFT JOIN {G} g USING (trace_id) LEFT JOIN {A} a USING (trace_id)
            WHERE trace_id IN (SELECT trace_id FROM {S} {GROUNDED})
            AND trace_id IN (SELECT trace_id FROM {S} WHERE evaluator IN ('groundedness', 'refusal')
                             AND status <> 'skipped'))"""

ROWS: list[tuple[str, Find, str]] = [
    # the overview: facts, targets, sentences
    (OVERVIEW, fact("Cost"), f"SELECT sum(cost_usd * w) FROM {T}"),
    (OVERVIEW, said(r"unknown for (\S+ %)"), f"SELECT sum(w) FILTER (cost_usd IS NULL) / sum(w) FROM {T}"),
    (OVERVIEW, fact("Errors"), f"SELECT sum(w) FILTER (error) / sum(w) FROM {T}"),
    (OVERVIEW, fact("Traffic"), f"SELECT sum(w) FROM {T}"),
    (OVERVIEW, fact("Latency p95"), f"SELECT quantile_cont(latency_ms, 0.95) FROM {T}, range(w::BIGINT)"),
    (OVERVIEW, said(r"error rate at most \S+ %: (\S+ %)"), f"SELECT sum(w) FILTER (error) / sum(w) FROM {T}"),
    (OVERVIEW, said(r"groundedness at least \S+: (\S+)"), f"SELECT sum(normalized * w) / sum(w) FROM {G}"),
    (OVERVIEW, said(r"at least .*?(\d+) answers"), f"SELECT count(*) FROM {G}"),
    (OVERVIEW, said(r"Of (\d+) answers"), f"SELECT sum(w) FROM {T} WHERE answer IS NOT NULL"),
    (OVERVIEW, said(r"(\d+) are empty"), f"SELECT sum(w) FROM {T} WHERE answer = 'empty'"),
    (OVERVIEW, said(r"(\d+) declined"), f"SELECT sum(w) FROM {T} WHERE answer = 'refused'"),
    (OVERVIEW, said(r"Error rate misses its target: (\S+ %)"), f"SELECT sum(w) FILTER (error) / sum(w) FROM {T}"),
    # charts
    (OVERVIEW, card("Groundedness"), f"SELECT sum(normalized * w) / sum(w) FROM {G}"),
    (OVERVIEW, card("Groundedness", last=True), f"SELECT sum(normalized * w) / sum(w) FROM {G} WHERE {LATE}"),
    (OVERVIEW, said(r"(\d+) of \d+ passed, \d+ unclear"), f"SELECT count(*) FROM {G} WHERE {LATE} AND passing"),
    (OVERVIEW, said(r"\d+ of (\d+) passed, \d+ unclear"),
     f"SELECT count(*) FROM {G} WHERE {LATE} AND passing IS NOT NULL"),
    (OVERVIEW, said(r"\d+ of \d+ passed, (\d+) unclear"), f"SELECT count(*) FROM {G} WHERE {LATE} AND passing IS NULL"),
    (OVERVIEW, said(r"(\S+ %) unclear"), f"SELECT sum(w) FILTER (label = 'unclear') / sum(w) FROM {G}"),
    (OVERVIEW, card("Citation check"), f"SELECT avg(normalized) FROM {S} WHERE run_id = 'r2' AND status = 'ok'"),
    (OVERVIEW, card("Answered"), f"SELECT sum(normalized * w) / sum(w) FROM {A}"),
    (OVERVIEW, card("Answered", last=True), f"SELECT sum(normalized * w) / sum(w) FROM {A} WHERE {LATE}"),
    (OVERVIEW, card("Requests per minute"), f"SELECT sum(w) / 1440 FROM {T}"),
    (OVERVIEW, card("Cost per hour"), f"SELECT sum(cost_usd * w) / 24 FROM {T}"),
    (OVERVIEW, card("Cost per hour", last=True),
     f"SELECT sum(cost_usd * w) / 2 FROM {T} WHERE start_time >= '2025-03-10 22:00'"),
    (OVERVIEW, card("Error rate"), f"SELECT sum(w) FILTER (error) / sum(w) FROM {T}"),
    (OVERVIEW, card("Tokens per minute", last=True),
     f"SELECT sum(input_tokens * w) / 120 FROM {T} WHERE start_time >= '2025-03-10 22:00'"),
    (OVERVIEW, card("Latency", last=True), f"""SELECT quantile_cont(latency_ms, 0.95) FROM {T}, range(w::BIGINT)
        WHERE start_time >= '2025-03-10 22:00'"""),
    (OVERVIEW, card("Scored share", last=True), f"""SELECT count(s.trace_id) / count(*) FROM {D} d
        LEFT JOIN {G} s USING (trace_id) WHERE d.evaluator = 'groundedness'
        AND d.request_time >= '2025-03-10 22:00'"""),
    # the whole range and its coverage
    (OVERVIEW, cell(WHOLE, "groundedness", "Score"), f"SELECT sum(normalized * w) / sum(w) FROM {G}"),
    (OVERVIEW, said(r"(\d+) of 360 answers · \d+ users"), f"SELECT count(*) FROM {G}"),
    (OVERVIEW, said(r"195 of (\d+) answers"), f"SELECT count(*) FROM {D} WHERE evaluator = 'groundedness'"),
    (OVERVIEW, said(r"195 of 360 answers · (\d+) users"),
     f"SELECT count(DISTINCT coalesce(user_id, talk)) FROM {USER}"),
    (OVERVIEW, said(r"(\d+) missing 5"), f"""SELECT count(*) FROM {S}
        WHERE evaluator = 'groundedness' AND status IN ('invalid', 'error')"""),
    (OVERVIEW, cell(WHOLE, "groundedness", "Passing"),
     f"SELECT sum(w) FILTER (passing) / sum(w) FILTER (passing IS NOT NULL) FROM {G}"),
    (OVERVIEW, said(r"of the (\S+ %) it decides"), f"SELECT sum(w) FILTER (passing IS NOT NULL) / sum(w) FROM {G}"),
    (OVERVIEW, said(r"undecided was (0\.\d+)"), """SELECT sum(normalized / pi) / sum(1 / pi) FROM scores
        WHERE evaluator = 'groundedness' AND status = 'ok' AND request_time < '2025-03-10'"""),
    *((OVERVIEW, cell(COVERED, "groundedness", head), f"SELECT count(*) FROM {source} {GROUNDED}" + more)
      for head, source, more in (("Eligible", D, ""), ("Selected", D, " AND sampled"), ("Scored", G, ""),
                                 ("Skipped", S, " AND status = 'skipped'"),
                                 ("Unreadable", S, " AND status = 'invalid'"), ("Failed", S, " AND status = 'error'"))),
    (OVERVIEW, cell(COVERED, "answered", "Given up"),
     f"SELECT count(*) FROM {D} WHERE evaluator = 'refusal' AND reason = 'budget'"),
    (OVERVIEW, said(r"([\d.]+k) tokens"), f"SELECT sum((input_tokens + output_tokens) * w) FROM {T}"),
    (OVERVIEW, said(r"(\S+) per good answer"), f"""SELECT
        (SELECT sum(cost_usd * w) / sum(w) FILTER (cost_usd IS NOT NULL)
            / (1 - sum(w) FILTER (error) / sum(w)) FROM {T})
        / (SELECT sum(w) FILTER (supported AND answered >= 0.5)
        / sum(w) FROM (SELECT g.w, coalesce(g.passing, g.normalized >= 0.5) AS supported, a.normalized AS answered
                       FROM {G} g JOIN {A} a USING (trace_id) WHERE g.label IS NULL))"""),
    (OVERVIEW, said(r"thumbs \(people\) (\d+)"), f"SELECT count(*) FROM {S} WHERE source = 'human'"),
    (OVERVIEW, said(r"thumbs \(people\) \d+ (\S+)"), f"SELECT avg(score) FROM {S} WHERE source = 'human'"),
    # groups
    *((BY_SERVICE, cell("One row a group", service, head), f"SELECT {sql} FROM {T} WHERE service = '{service}'")
      for service in ("helpdesk", "shop")
      for head, sql in (("Requests", "sum(w)"), ("Error rate", "sum(w) FILTER (error) / sum(w)"),
                        ("Cost", "sum(cost_usd * w)"), ("Latency", "quantile_cont(latency_ms, 0.95)"))),
    *((BY_SERVICE, cell("One row a group", service, "Groundedness"), f"""SELECT sum(normalized * s.w) / sum(s.w)
        FROM {G} s JOIN {T} t USING (trace_id) WHERE t.service = '{service}'""") for service in ("helpdesk", "shop")),
    # figures: each bucket, also of another zone
    (f"/figures?{RANGE}&metric=requests&step=21600", cell("Every bucket as a table", "Mar 10 06:00", "Value"),
     f"SELECT sum(w) / 360 FROM {T} WHERE hour(start_time) BETWEEN 6 AND 11"),
    (f"/figures?{RANGE}&metric=quality:groundedness&step=21600",
     cell("Every bucket as a table", "Mar 10 12:00", "Value"),
     f"SELECT sum(normalized * w) / sum(w) FROM {G} WHERE hour(request_time) BETWEEN 12 AND 17"),
    (f"/figures?{RANGE}&metric=error_rate&step=43200&tz=Europe/Berlin",
     cell("Every bucket as a table", "Mar 10 12:00", "Value"),
     f"SELECT sum(w) FILTER (error) / sum(w) FROM {T} WHERE hour(start_time) BETWEEN 11 AND 22"),
    (f"/figures?{RANGE}&metric=error_rate&step=43200&tz=Europe/Berlin",
     cell("Every bucket as a table", "Mar 11 00:00", "Answers"),
     f"SELECT count(*) FROM {T} WHERE hour(start_time) = 23"),
    (f"/figures?{RANGE}&metric=empty_rate&step=86400", cell("Every bucket as a table", "Mar 10 00:00", "Value"),
     f"SELECT sum(w) FILTER (answer = 'empty') / sum(w) FROM {T} WHERE answer IS NOT NULL"),
    # traces
    (f"/traces?{RANGE}", said(r"Traces (\d+)"), f"SELECT count(*) FROM {T}"),
    (f"/traces?{RANGE}&failing=true", said(r"Traces (\d+)"), f"SELECT count(*) FROM {G} WHERE NOT passing"),
    (f"/traces?{RANGE}&error=true", said(r"Traces (\d+)"), f"SELECT count(*) FROM {T} WHERE error"),
    (f"/traces?{RANGE}&answer=refused", said(r"Traces (\d+)"), f"SELECT count(*) FROM {T} WHERE answer = 'refused'"),
    (f"/traces?{RANGE}&document=doc9", said(r"Traces (\d+)"),
     f"SELECT count(*) FROM {T} WHERE trace_id IN (SELECT trace_id FROM contexts WHERE id = 'doc9')"),
    (f"/traces?{RANGE}&label=unclear&evaluator=groundedness", said(r"Traces (\d+)"),
     f"SELECT count(*) FROM {G} WHERE label = 'unclear'"),
    (f"/traces?{RANGE}&sort=slow", cell("Traces", "", "Latency"), f"SELECT max(latency_ms) FROM {T}"),
    (f"/traces?{RANGE}&sort=expensive", cell("Traces", "", "Cost"), f"SELECT max(cost_usd) FROM {T}"),
    (f"/traces?{RANGE}&sort=long&columns=tokens", cell("Traces", "", "Tokens"),
     f"SELECT max(input_tokens + output_tokens) FROM {T}"),
    (f"/facets?for=/traces&{RANGE}", said(r"shop (\d+)"), f"SELECT count(*) FROM {T} WHERE service = 'shop'"),
    (f"/facets?for=/traces&{RANGE}", said(r"sonnet (\d+)"), f"SELECT count(*) FROM {T} WHERE model = 'sonnet'"),
    (f"/traces/{TRACE}", said(r"Tokens (\d+) in"), f"SELECT input_tokens FROM {T} WHERE trace_id = '{TRACE}'"),
    (f"/traces/{TRACE}", said(r"· (\$\S+)"), f"SELECT cost_usd FROM {T} WHERE trace_id = '{TRACE}'"),
    (f"/traces/{TRACE}", said(r"Contexts (\d+)"), f"SELECT count(*) FROM contexts WHERE trace_id = '{TRACE}'"),
    (f"/traces/{TRACE}", said(r"Spans (\d+)"), f"SELECT count(*) FROM spans WHERE trace_id = '{TRACE}'"),
    # sessions and users
    (f"/sessions?{RANGE}&sort=worst", cell("Sessions", "", "Worst"),
     f"SELECT min(normalized) FROM {G} WHERE NOT passing"),
    (f"/sessions?{RANGE}&sort=cost", cell("Sessions", "", "Cost"), """SELECT cost_usd FROM sessions
        WHERE end_time >= '2025-03-10' ORDER BY 1 DESC NULLS LAST LIMIT 1"""),
    ("/sessions/s7", fact("Turns"), f"SELECT sum(w) FROM {TALK}"),
    ("/sessions/s7", fact("Cost"), f"SELECT sum(cost_usd * w) FROM {TALK}"),
    ("/users/u5", fact("Turns"), "SELECT count(*) FROM traces WHERE user_id = 'u5'"),
    ("/users/u5", said(r"(\d+) sessions"), "SELECT count(DISTINCT session_id) FROM traces WHERE user_id = 'u5'"),
    # documents
    (f"/documents?{RANGE}", said(r"good answer (\d+)"),
     f"SELECT sum(w) FROM {BOTH} WHERE supported AND answered IS DISTINCT FROM 0"),
    (f"/documents?{RANGE}", said(r"contexts ignored (\d+)"),
     f"SELECT sum(w) FROM {BOTH} WHERE NOT supported AND answered IS DISTINCT FROM 0"),
    (f"/documents?{RANGE}", said(r"not decidable (\d+)"),
     f"SELECT sum(w) FROM {BOTH} WHERE supported IS NULL OR answered = 0"),
    (f"/documents?{RANGE}", cell("Documents table", "doc9", "Retrieved"),
     f"SELECT sum(w) FROM {T} WHERE trace_id IN (SELECT trace_id FROM contexts WHERE id = 'doc9')"),
    (f"/documents?{RANGE}", cell("Documents table", "doc9", "Retrieved", tip=True),
     f"SELECT count(DISTINCT query) FROM {T} WHERE trace_id IN (SELECT trace_id FROM contexts WHERE id = 'doc9')"),
    (f"/documents?{RANGE}", cell("Documents table", "doc9", "Quality with it"),
     f"SELECT sum(normalized * w) / sum(w) FROM {WITH_DOCUMENT}"),
    (f"/documents?{RANGE}", cell("Documents table", "doc9", "Quality with it", tip=True),
     f"SELECT count(*) FROM {WITH_DOCUMENT}"),
    (f"/documents?{RANGE}", cell("Documents table", "doc9", "Without"),
     f"SELECT sum(normalized * w) / sum(w) FROM {G} WHERE trace_id NOT IN (SELECT trace_id FROM {WITH_DOCUMENT})"),
    # topics
    (f"/topics?{RANGE}", said(r"(\d+) questions · topics of"), f"SELECT sum(w) FROM {T} WHERE topic IS NOT NULL"),
    (f"/topics?{RANGE}", said(r"(\d+) without a topic"),
     f"SELECT sum(w) FROM {T} WHERE topic IS NULL AND query IS NOT NULL"),
    (f"/topics?{RANGE}", cell("Topics table", "returns", "Share"),
     f"SELECT sum(w) FILTER (topic = 'returns') / sum(w) FROM {T} WHERE topic IS NOT NULL"),
    (f"/topics?{RANGE}", cell("Topics table", "returns", "Groundedness"),
     f"SELECT sum(normalized * s.w) / sum(s.w) FROM {G} s JOIN {TOPIC} USING (trace_id)"),
    (f"/topics?{RANGE}", cell("Topics table", "returns", "Cost"),
     f"SELECT sum(cost_usd * w) / sum(w) FILTER (cost_usd IS NOT NULL) FROM {TOPIC}"),
    (f"/topics?{RANGE}", cell("Topics table", "returns", "p95"),
     f"SELECT quantile_cont(latency_ms, 0.95) FROM {TOPIC}, range(w::BIGINT)"),
    (f"/topics?{RANGE}", cell("Topics table", "returns", "Thumbs up"),
     f"SELECT sum(greatest(feedback, 0) * w) / sum(w) FROM {TOPIC} WHERE feedback IS NOT NULL"),
    # explain
    (f"/explain?{RANGE}&metric=quality:groundedness", said(r"(\d+) bad answers, and"),
     f"SELECT count(*) FROM {G} WHERE NOT passing"),
    (f"/explain?{RANGE}&metric=quality:groundedness", said(r"among the (\d+) others"),
     f"SELECT count(*) FROM {G} WHERE passing"),
    (f"/explain?{RANGE}&metric=quality:groundedness", said(r"(\d+) unclear answers"),
     f"SELECT count(*) FROM {G} WHERE label = 'unclear'"),
    *((f"/explain?{RANGE}&metric=cost_usd&at=2025-03-10T12:00:00Z", said(pattern),
       f"SELECT sum(cost_usd * w) FROM {T} WHERE start_time {half} '2025-03-10 12:00'")
      for half, pattern in (("<", r"The cost was (\S+)"), (">=", r"The cost was \S+ → (\S+)"))),
    (f"/explain?{RANGE}&metric=cost_usd&at=2025-03-10T12:00:00Z", said(r"unknown for (\S+ %) of the requests before"),
     f"SELECT sum(w) FILTER (cost_usd IS NULL) / sum(w) FROM {T} WHERE start_time < '2025-03-10 12:00'"),
    (f"/explain?{RANGE}&metric=error_rate&at=2025-03-10T12:00:00Z", said(r"Error rate was (\S+ %)"),
     f"SELECT sum(w) FILTER (error) / sum(w) FROM {T} WHERE start_time < '2025-03-10 12:00'"),
    (f"/explain?{RANGE}&metric=error_rate&at=2025-03-10T12:00:00Z", said(r"Error rate was \S+ % → (\S+ %)"),
     f"SELECT sum(w) FILTER (error) / sum(w) FROM {T} WHERE start_time >= '2025-03-10 12:00'"),
    # replays
    ("/replays", cell("Runs table", "groundedness", "Scored"), f"SELECT count(*) FROM {RUN} WHERE status = 'ok'"),
    ("/replays", cell("Runs table", "groundedness", "Cost"), f"SELECT sum(cost_usd) FROM {RUN}"),
    ("/replays/r1", fact("Skipped"), f"SELECT count(*) FROM {RUN} WHERE status = 'skipped'"),
    ("/replays/r1", said(r"Scores (0\.\d+)"), f"SELECT avg(normalized) FROM {RUN}"),
    ("/replays/r1", said(r"(\d+) of \d+ pass"), f"SELECT count(*) FROM {RUN} WHERE passing"),
    ("/replays/r1", cell("Distribution", "0.3 to 0.4", "Answers"),
     f"SELECT count(*) FROM {RUN} WHERE normalized >= 0.3 AND normalized < 0.4"),
    ("/replays/r1", said(r"on (\d+) answers with both"), f"SELECT count(*) FROM {PAIRS}"),
    ("/replays/r1", said(r"(0\.\d+) in use"), f"SELECT sum(a * w) / sum(w) FROM {PAIRS}"),
    ("/replays/r1", said(r"(0\.\d+) here"), f"SELECT sum(b * w) / sum(w) FROM {PAIRS}"),
    ("/replays/r1", said(r"agree on (\d+ %) \d+ %"),
     f"SELECT sum(w) FILTER (pa = pb) / sum(w) FROM {PAIRS} WHERE pa IS NOT NULL"),
    ("/replays/r1", said(r"both pass (\d+)"), f"SELECT count(*) FROM {PAIRS} WHERE pa AND pb"),
    ("/replays/r1", said(r"only this one fails (\d+)"), f"SELECT count(*) FROM {PAIRS} WHERE pa AND NOT pb"),
    # compare
    *((f"/compare?{RANGE}&a=prompt:v6&b=prompt:v7", said(rf"prompt:{version} (0\.\d+)"), f"""SELECT
        sum(normalized * s.w) / sum(s.w) FROM {G} s JOIN {T} t USING (trace_id) WHERE prompt_version = '{version}'""")
      for version in ("v6", "v7")),
    # evaluators, alerts, health
    ("/evaluators", cell("Evaluators in use", "refusal", "Scored"),
     "SELECT count(*) FROM scores WHERE evaluator = 'refusal' AND created_at >= now()::TIMESTAMP - INTERVAL 1 DAY"),
    ("/alerts", said(r"–(\S+ s) · limit"), """SELECT max(p95) FROM (SELECT quantile_cont(latency_ms, 0.95) AS p95
        FROM traces WHERE service = 'helpdesk' AND start_time BETWEEN '2025-03-09 17:00' AND '2025-03-10 08:00'
        GROUP BY time_bucket(INTERVAL 1 HOUR, start_time))"""),
    # the digest, of one topic: others make it look for gaps, which takes seconds
    (DIGEST, said(r"(\d+) answers, before"), f"SELECT sum(w) FROM {TOPIC}"),
    (DIGEST, said(r"answers, before (\d+)"),
     "SELECT sum(1 / coalesce(upstream_pi, 1)) FROM traces WHERE start_time < '2025-03-10' AND topic = 'returns'"),
    (DIGEST, said(r"groundedness (0\.\d+)"),
     f"SELECT sum(normalized * s.w) / sum(s.w) FROM {G} s JOIN {TOPIC} USING (trace_id)"),
    (DIGEST, said(r"; (\$\S+), before"), f"SELECT sum(cost_usd * w) FROM {TOPIC}"),
    (DIGEST, said(r"\((\d+) not selected"), f"""SELECT count(*) FROM {D} JOIN {TOPIC} USING (trace_id)
        WHERE evaluator = 'groundedness' AND NOT sampled"""),
    # health
    ("/health", said(r"Spans stored ([\d,]+)"), "SELECT count(*) FROM spans"),
    ("/health", said(r"of them scored (\d+)"), "SELECT count(*) FROM scores WHERE source <> 'human' AND status = 'ok'"),
    ("/health", said(r"Dropped: budget (\d+)"), "SELECT count(*) FROM decisions WHERE reason = 'budget'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def read(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Callable[[str], ET.Element], Callable[[str], float]]]:
    """A page as elements, and a number of SQL."""
    with pages(tmp_path_factory.mktemp("numbers")) as (store, client, api):

        @cache
        def page(path: str) -> ET.Element:
            if path == DIGEST:
                return Tree(" ".join(anyio.run(api, "GET digest", WEEK).lines)).root
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            return Tree(answer.text[max(0, answer.text.find("<main")) :]).root

        yield page, lambda sql: float(store.read(sql).rows[0][0])


@pytest.mark.parametrize(
    ("path", "find", "sql"), ROWS, ids=[f"{number}-{row[0].partition('?')[0]}" for number, row in enumerate(ROWS)]
)
def test_a_number_on_a_page_is_that_of_sql(read: Any, path: str, find: Find, sql: str) -> None:
    """Within half of the last digit that is shown."""
    page, number_of = read
    value, half = number_in(find(page(path)))
    assert value == pytest.approx(number_of(sql), rel=0, abs=1.001 * half)


def test_there_are_enough_numbers() -> None:
    """Over every kind of page."""
    assert len(ROWS) >= 120
    kinds = {re.split(r"[?/]", path.lstrip("/"))[0] for path, *_ in ROWS}
    assert len(kinds) == 15, kinds
