"""What Explain says about a moment: planted changes, and parts that add up to the change."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stored_units import T0, Units, trace_id

from ragpulse_collector.analysis.why.parts import product_parts
from ragpulse_collector.store.embedded import EmbeddedStore

HOUR = timedelta(hours=1)
PRICES = {"haiku": (1e-6, 5e-6), "sonnet": (3e-6, 15e-6)}


@dataclass(frozen=True)
class Request:
    """One request as it is planted."""

    model: str = "haiku"
    price: float = 1.0
    tokens: tuple[int, int] = (1000, 200)
    known: bool = True
    version: str = "v6"
    index: str = "i1"
    documents: tuple[str, ...] = ("a", "b")
    score: float = 0.9
    search_ms: float = 100.0
    error: str | None = None
    service: str = "desk"
    query: str = "Why?"
    more: dict[str, Any] = field(default_factory=dict)


Change = Callable[[int, Request], Request]


def plant(
    store: EmbeddedStore,
    change: Change,
    *,
    n: int = 400,
    times: float = 1.0,
    seed: int = 3,
    before: Change = lambda _, one: one,
) -> None:
    """`n` requests in the hour before noon, `times` as many in the hour after; `change` alters those after."""
    units, draw = Units(store), random.Random(seed)
    total = n + round(n * times)
    for number in range(total):
        late = number >= n
        at = T0 + HOUR * ((number - n) / (total - n) if late else number / n - 1)
        documents = tuple(f"doc{draw.randrange(200)}" for _ in range(2))
        one = Request(
            documents=documents, score=0.95 if draw.random() < 0.9 else 0.45, service="xy"[draw.random() < 0.5]
        )
        one = replace(one, model="sonnet" if number % 7 == 0 else "haiku")
        add(units, number, at, change(number, one) if late else before(number, one), draw)
    units.save()


def add(units: Units, number: int, at: datetime, one: Request, draw: random.Random) -> None:
    """Write one request: facts, a search and an answer below the unit, contexts and a score."""
    sent, written = one.tokens
    cost = sum(n * price for n, price in zip(one.tokens, PRICES[one.model], strict=True)) * one.price
    slow = draw.gauss(800, 100)
    facts = {"model": one.model, "prompt_version": one.version, "index_version": one.index,
             "service": one.service, "error": bool(one.error),
             "latency_ms": 50 + one.search_ms + slow, "cost_usd": cost if one.known else None,
             "input_tokens": sent, "output_tokens": written, "query": one.query, **one.more}  # fmt: skip
    units.scored(number, "check", one.score, at=at, facts=facts)
    units.contexts(number, ["text"] * len(one.documents), ids=one.documents, at=at)
    for span, name, kind, ms in ((0xCC, "find", "chain", one.search_ms), (0xDD, "ask", "llm", slow)):
        units.add("spans", trace_id=trace_id(number), span_id=span, parent_span_id=0xAA, start_time=at,
                  received_at=at, duration_us=round(ms * 1000), name=name, kind=kind,
                  status="error" if one.error and kind == "llm" else "ok",
                  error_type=one.error if kind == "llm" else None)  # fmt: skip


def why(store: EmbeddedStore, metric: str, **more: Any) -> Any:
    """The change at noon."""
    asked = {"metric": metric, "from": "2026-11-20T11:00:00Z", "at": "2026-11-20T12:00:00Z", **more}
    return ask(store, "explain", asked, clock=lambda: T0 + HOUR)["change"]


def every(share: float) -> Callable[[int], bool]:
    """A fixed choice of a share of the requests."""
    return lambda number: number * 7919 % 1000 < share * 1000


def bad(one: Request) -> Request:
    """The same with an answer that fails."""
    return replace(one, score=0.2)


def new_version(number: int, one: Request) -> Request:
    """A worse version for some of the traffic."""
    return bad(replace(one, version="v7")) if every(0.3)(number) else one


def of_twenty(number: int, one: Request) -> Request:
    """A version that retrieves twenty: its answers are bad whatever they retrieve."""
    documents = tuple(f"doc{(number * 31 + rank * 7) % 200}" for rank in range(20))
    return bad(replace(one, version="v7", documents=documents)) if every(0.3)(number) else one


def bad_document(number: int, one: Request) -> Request:
    """A new document that misleads."""
    return bad(replace(one, documents=("stale.md", one.documents[0]))) if every(0.25)(number) else one


def spoilt_document(number: int, one: Request) -> Request:
    """No more common than before: its text became wrong."""
    return bad(one) if "doc7" in one.documents or "doc8" in one.documents else one


def both(number: int, one: Request) -> Request:
    """The version, and in other requests the document."""
    return new_version(number, one) if every(0.3)(number) else bad_document(number + 1, one)


def guided(number: int, one: Request) -> Request:
    """A quarter of the requests have the guide."""
    return replace(one, documents=("guide.md", one.documents[0])) if every(0.25)(number) else one


def asking(number: int, one: Request) -> Request:
    """The same, of questions of its own."""
    mine = every(0.25)(number)
    return guided(number, replace(one, query=f"{'How to' if mine else 'What is'} {number % 9}?"))


def ask_only(number: int, one: Request) -> Request:
    """The same questions without the guide."""
    return replace(one, query=asking(number, one).query)


def unguided(number: int, one: Request) -> Request:
    """What the guide answered is answered without it, badly."""
    return bad(one) if every(0.25)(number) else one


def renamed(number: int, one: Request) -> Request:
    """The guide has another name."""
    guide = guided(number, one)
    return replace(guide, documents=tuple(name.replace("guide", "guide-2") for name in guide.documents))


def rechunked(number: int, one: Request) -> Request:
    """Chunks that are cut badly: a third of the answers is bad, whatever they rest on; all documents go on."""
    return random_bad(number, replace(one, index="i2"))


def harmless(number: int, one: Request) -> Request:
    """Three other changes at the same time: a version for half, a model for some, a service for a few."""
    return replace(
        one, version="v7" if number % 2 else "v6", model="sonnet" if number % 3 == 0 else "haiku",
        service="new" if number % 5 == 0 else one.service,
    )  # fmt: skip


def random_bad(number: int, one: Request) -> Request:
    """A third of the answers, whatever they have."""
    return bad(one) if every(0.3)(number * 31 + 7) else one


ROWS: list[tuple[str, str, Change, float, list[tuple[str, str]], float]] = [
    ("a price", "cost_usd", lambda _, one: replace(one, price=2.0), 1, [("prices", "")], 0.99),
    ("a model", "cost_usd", lambda n, one: replace(one, model="sonnet") if every(0.5)(n) else one, 1,
     [("models", "")], 0.95),
    ("longer prompts", "cost_usd", lambda _, one: replace(one, tokens=(4000, 800)), 1,
     [("tokens per answer", "")], 0.99),
    ("more requests", "cost_usd", lambda _, one: one, 2, [("requests", "")], 0.95),
    ("prices known", "cost_usd", lambda n, one: replace(one, known=every(0.5)(n)), 1, [("known cost", "")], 0.9),
    ("a slow step", "latency_p95", lambda _, one: replace(one, search_ms=900.0), 1, [("step", "find (chain)")], 0.9),
    ("a slow step, at the median", "latency_p50", lambda _, one: replace(one, search_ms=900.0), 1,
     [("step", "find (chain)")], 0.95),
    ("an error", "error_rate", lambda n, one: replace(one, error="Timeout" if every(0.1)(n) else None), 1,
     [("error type", "Timeout")], 0.99),
    ("a version", "quality:check", new_version, 1, [("prompt_version", "v7")], 0.75),
    ("a version for all", "quality:check", lambda _, one: bad(replace(one, version="v7")), 1,
     [("prompt_version", "v7")], 0.99),
    ("a model that answers badly", "quality:check",
     lambda n, one: bad(replace(one, model="sonnet")) if every(0.4)(n) else one, 1, [("model", "sonnet")], 0.75),
    ("a model that became bad", "quality:check", lambda _, one: bad(one) if one.model == "sonnet" else one, 1,
     [("model", "sonnet")], 0.75),
    ("top_k", "quality:check", lambda n, one: bad(replace(one, documents=one.documents * 4)) if every(0.5)(n) else one,
     1, [("contexts retrieved", "8")], 0.75),
    ("a version that retrieves twenty", "quality:check", of_twenty, 1, [("prompt_version", "v7")], 0.75),
    ("a document", "quality:check", bad_document, 1, [("document", "stale.md")], 0.75),
    ("a document that vanished", "quality:check", unguided, 1, [("document", "guide.md")], 0.75),
    ("a document that vanished, with questions", "quality:check", lambda n, one: unguided(n, ask_only(n, one)), 1,
     [("document", "guide.md")], 0.75),
    ("a document that vanished beside a bad version", "quality:check", lambda n, one: new_version(n, ask_only(n, one)),
     1, [("prompt_version", "v7")], 0.75),
    ("a document that vanished, missed by nobody", "quality:check", lambda n, one: random_bad(n, ask_only(n, one)), 1,
     [], 0.0),
    ("a document with a new name", "quality:check", lambda n, one: unguided(n, renamed(n, one)), 1,
     [("document", "guide-2.md")], 0.75),
    ("a new name beside a model that became bad", "quality:check",
     lambda n, one: bad(renamed(n, one)) if one.model == "sonnet" else renamed(n, one), 1, [("model", "sonnet")], 0.75),
    ("a new name alone", "quality:check", lambda n, one: random_bad(n, renamed(n, one)), 1, [], 0.0),
    ("a bad document that vanished", "quality:check", lambda _, one: one, 1, [("document", "guide.md")], 0.75),
    ("a document that appears beside a bad version", "quality:check", lambda n, one: new_version(n, guided(n + 3, one)),
     1, [("prompt_version", "v7")], 0.75),
    ("a new index for all", "quality:check", lambda n, one: rechunked(n, one), 1, [("index_version", "i2")], 0.9),
    ("a new index beside harmless changes", "quality:check", lambda n, one: harmless(n, rechunked(n, one)), 1,
     [("index_version", "i2")], 0.9),
    ("harmless changes", "quality:check", lambda n, one: harmless(n, one), 1, [], 0.0),
    ("two", "quality:check", both, 1, [("prompt_version", "v7"), ("document", "stale.md")], 0.75),
    ("a version that had begun before", "quality:check", lambda _, one: bad(replace(one, version="v7")), 1,
     [("prompt_version", "v7")], 0.75),
    ("nothing", "quality:check", lambda _, one: one, 1, [], 0.0),
    ("all alike", "quality:check", lambda n, one: bad(one) if every(0.3)(n) else one, 1, [], 0.0),
    ("no slower", "latency_p95", lambda _, one: one, 1, [], 0.0),
]  # fmt: skip


BEFORE: dict[str, Change] = {
    "a version that had begun before": lambda n, one: bad(replace(one, version="v7")) if n > 360 else one,
    "a document that vanished": guided,
    **{f"a document that vanished{more}": asking for more in (", with questions", " beside a bad version",
                                                              ", missed by nobody")},
    **dict.fromkeys(("a document with a new name", "a new name beside a model that became bad", "a new name alone"),
                    guided),
    "a bad document that vanished": lambda n, one: bad(guided(n, one)) if every(0.25)(n) else one,
}  # fmt: skip
"""What some requests before the moment have."""


@pytest.mark.parametrize(("kind", "metric", "change", "times", "expected", "share"), ROWS, ids=[row[0] for row in ROWS])
def test_a_planted_change_is_named_and_nothing_else(
    store: EmbeddedStore, kind: str, metric: str, change: Change, times: float, expected: list[Any], share: float
) -> None:
    """Each with how much it explains; the parts of cost add up, and no other part is worth a word."""
    plant(store, change, times=times, before=BEFORE.get(kind, lambda _, one: one))
    found = why(store, metric)
    whole = found["change"]["value"]
    large = [part for part in found["parts"] if abs(part["amount"]) >= 0.1 * abs(whole)]
    assert [(part["attribute"], part["value"]) for part in large] == expected, kind
    if expected:
        assert math.fsum(part["amount"] for part in large) == pytest.approx(whole, rel=1.02 - share)
        assert found["after"] - found["before"] == pytest.approx(whole)
    if metric == "cost_usd":
        assert math.fsum(part["amount"] for part in found["parts"]) == pytest.approx(whole)


def test_a_vanished_document_is_sure_where_its_questions_are_asked_again(store: EmbeddedStore) -> None:
    """Else the time alone speaks for it, and no interval is given; how many had it is told for both."""
    plant(store, lambda number, one: unguided(number, ask_only(number, one)), before=asking)
    (part,) = why(store, "quality:check")["parts"]
    assert (part["before"], part["after"], part["also"]) == (pytest.approx(0.25, abs=0.01), 0.0, [])
    assert part["lo"] < part["amount"] < part["hi"] < 0.0


def test_a_vanished_document_explains_its_questions_also_from_an_earlier_moment_on(store: EmbeddedStore) -> None:
    """It vanished half an hour before the moment: its bad answers of then are no gain without it."""

    def before(number: int, one: Request) -> Request:
        return asking(number, one) if number < 300 else unguided(number, ask_only(number, one))

    plant(store, lambda number, one: unguided(number, ask_only(number, one)), before=before)
    found = why(store, "quality:check")
    (part,) = found["parts"]
    assert part["value"] == "guide.md"
    assert part["amount"] == pytest.approx(found["change"]["value"], rel=0.25)


def test_a_vanished_document_explains_no_more_than_its_answers_could_lose(store: EmbeddedStore) -> None:
    """Six of a hundred had it, and three of ten became bad: the rest of the fall is nobody's."""
    rare = every(0.06)
    plant(
        store,
        lambda number, one: bad(one) if rare(number) or every(0.3)(number * 31) else one,
        before=lambda number, one: replace(one, documents=("guide.md", "doc1")) if rare(number) else one,
    )
    found = why(store, "quality:check")
    (part,) = found["parts"]
    assert (part["value"], part["lo"], part["hi"]) == ("guide.md", None, None)
    assert 0.1 < part["amount"] / found["change"]["value"] < 0.3


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(*[st.floats(0, 1e6)] * 2), min_size=1, max_size=4))
@example([(3.0, 0.7), (0.7, 3.0)])
@example([(1e6, 1e-3), (1e-3, 1e6 + 1e-9)])
def test_the_parts_of_a_product_add_up(pairs: list[tuple[float, float]]) -> None:
    """Also where a factor is 0 on one side: then it has the whole change."""
    before, after = zip(*pairs, strict=True)
    change = math.prod(after) - math.prod(before)
    scale = max(math.prod(after), math.prod(before))
    assert math.fsum(product_parts(before, after)) == pytest.approx(change, rel=1e-6, abs=1e-9 * scale + 1e-300)


def test_both_times_are_equally_long_and_known(store: EmbeddedStore) -> None:
    """Half an hour is known before: half an hour after is compared with it; before the first request nothing is."""
    plant(store, lambda _, one: one, n=60)
    found = why(store, "cost_usd", at="2026-11-20T11:30:00Z")
    assert (found["from"], found["to"]) == ("2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z")
    assert why(store, "cost_usd", at="2026-11-20T10:30:00Z") is None
    assert why(store, "cost_usd", at="2026-11-20T13:30:00Z") is None


def test_an_unknown_price_is_told_with_its_share(store: EmbeddedStore) -> None:
    """It is never 0: the known requests alone have a price for a token."""
    plant(store, lambda number, one: replace(one, known=every(0.5)(number)))
    found = why(store, "cost_usd")
    known = next(part for part in found["parts"] if part["attribute"] == "known cost")
    assert (known["before"], known["after"]) == (1.0, pytest.approx(0.5, abs=0.05))
    for one in found["models"]:
        before, after = (side["usd"] / side["tokens"] for side in (one["before"], one["after"]))
        assert after == pytest.approx(before)


def test_what_came_in_the_same_requests_is_named_beside_the_cause(store: EmbeddedStore) -> None:
    """The version came with a variant; a model that others use, too, is another matter."""

    def together(number: int, one: Request) -> Request:
        changed = bad(replace(one, version="v7", model="sonnet", more={"variant": "b"}))
        return changed if every(0.3)(number) else one

    plant(store, together)
    (part,) = why(store, "quality:check")["parts"]
    assert (part["value"], part["before"]) == ("v7", 0.0)
    assert part["after"] == pytest.approx(0.3, abs=0.02)
    assert part["also"] == [{"attribute": "variant", "value": "b"}]


def test_a_random_document_is_not_guilty_of_a_version_that_retrieves_twenty(store: EmbeddedStore) -> None:
    """Without a moment: bad answers have more of every document, yet none is named."""
    plant(store, of_twenty)
    asked = {"metric": "quality:check", "bad": True, "from": "2026-11-20T12:00:00Z", "sel_from": "2026-11-20T12:00:00Z"}
    found = ask(store, "explain", asked, clock=lambda: T0 + HOUR)["attributes"]
    guilty = [one for one in found if one["p_adjusted"] <= 0.05 and not one["explained_by"]]
    assert [(one["attribute"], one["value"]) for one in guilty if one["lift"] is None or one["lift"] > 1] == [
        ("prompt_version", "v7")
    ]


@pytest.mark.parametrize("ids", [{"session_id": "s"}, {"user_id": "u", "session_id": "s"}])
@pytest.mark.parametrize("metric", ["latency_p50", "quality:check", "error_rate"])
def test_one_user_alone_has_an_error(store: EmbeddedStore, metric: str, ids: dict[str, str]) -> None:
    """Nothing changed but by chance: not even a fifth of the requests; and what is worse for one user is sure."""
    chance = random.Random(7)

    def same(number: int, one: Request) -> Request:
        return replace(one, more=ids, error="Timeout" if chance.random() < 0.2 else None)

    plant(store, same, before=same)
    change = why(store, metric)
    assert change["change"]["lo"] < 0.0 < change["change"]["hi"]
    assert change["parts"] == []
    for worse, time in (("trace_facts SET error = true, latency_ms = latency_ms + 400", "start_time"),
                        ("scores SET normalized = 0.2", "request_time")):  # fmt: skip
        sql = f"UPDATE raw.{worse} WHERE {time} >= TIMESTAMP '{T0}'"
        store.write(lambda tx, sql=sql: tx.execute(sql)).result()
    change = why(store, metric)["change"]
    assert change["lo"] * change["hi"] > 0.0
