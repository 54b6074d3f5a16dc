"""Tags, metadata and release: sent as clients send them, then filtered, grouped, sampled and compared by."""

from __future__ import annotations

import gzip
import json
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.analysis.figures import readings
from ragpulse_collector.analysis.query import Query, columns_of, having
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.monitoring.measure import parse
from ragpulse_collector.sampling.rules import Rule
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.sql.where import condition

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

HOSTILE = """a.b "c" '); DROP TABLE x; -- é {0} $evaluator"""
FIRST = Path(__file__).parent / "fixtures" / "store-0.1.duckdb.gz"


@pytest.fixture(scope="module")
def client(shared_collector: Callable[..., Collector]) -> Client:
    """A collector with four decided traces: two tenants, three releases, tags on two."""
    return filled(connect(shared_collector().url))


def filled(client: Client) -> Client:
    """Send four traces and wait until they are decided."""
    acme = {"tag.tags": ["beta", "eu"], "metadata": json.dumps({"tenant": "acme", "seats": 5, HOSTILE: "x"})}
    send(client.url, rag_trace(1, **acme), release="1.4.2")
    send(client.url, rag_trace(2, **{"tag.tags": ["eu"], "metadata": '{"tenant": "globex"}'}), release="1.4.3")
    send(client.url, rag_trace(3, metadata="{malformed", **{"tag.tags": "[1]"}), release="1.4.3")
    send(client.url, rag_trace(4))
    until(client, "SELECT * FROM traces WHERE decided", 4)
    return client


def numbers(answer: Any) -> set[int]:
    """The numbers of the listed traces."""
    return {int(row["trace_id"], 16) - 1 for row in answer["traces"]}


def test_traces_hold_what_was_sent(client: Client) -> None:
    """A list, a map of texts, and the version of the service; malformed metadata leaves the trace as it is."""
    rows = client.sql("SELECT tags, metadata, release FROM traces ORDER BY trace_id").rows()
    assert rows[0]["tags"] == ["beta", "eu"]
    assert rows[0]["metadata"] == {"tenant": "acme", "seats": "5", HOSTILE: "x"}
    assert [row["release"] for row in rows] == ["1.4.2", "1.4.3", "1.4.3", None]
    assert (rows[2]["metadata"], rows[3]["tags"]) == (None, None)
    shown = client.call(f"GET traces/{2:032x}")["trace"]
    assert (shown["tags"], shown["metadata"]["tenant"], shown["release"]) == (["beta", "eu"], "acme", "1.4.2")


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"tag": "beta"}, {1}),
        ({"tag": ["beta", "eu"]}, {1, 2}),
        ({"release": "1.4.3"}, {2, 3}),
        ({"metadata.tenant": "acme"}, {1}),
        ({"metadata.tenant": ["acme", "globex"], "tag": "eu"}, {1, 2}),
        ({"metadata": {"tenant": ["globex"]}}, {2}),
        ({f"metadata.{HOSTILE}": "x"}, {1}),
        ({"metadata.seats": "5", "release": "1.4.2"}, {1}),
        ({"tag": "unknown"}, set()),
        ({"metadata.unknown": "acme"}, set()),
        ({"metadata.tenant": "' OR true --"}, set()),
        ({"where": "metadata.tenant = 'acme'"}, {1}),
        ({"where": "metadata.tenant LIKE 'g%' or tags[1] = 'beta'"}, {1, 2}),
        ({"where": f"""metadata."{HOSTILE.replace('"', '""')}" = 'x'"""}, {1}),
        ({"metadata.": "x", "metadata.\0": "x"}, set()),
        ({"where": "metadata['seats']::INT > 4 and release >= '1.4'"}, {1}),
        ({"where": "tag = 'beta' -- only"}, {1}),
        ({"where": "'eu' = tag and not tag = 'beta'"}, {2}),
        ({"where": "tag <> 'beta'"}, {2, 3, 4}),
        ({"where": "tag NOT IN ('beta', 'it''s')"}, {2, 3, 4}),
        ({"where": "metadata.tenant IS NULL"}, {3, 4}),
    ],
)
def test_lists_are_filtered(client: Client, filters: dict[str, Any], found: set[int]) -> None:
    """Parameters and conditions; unknown tags and keys find nothing."""
    if "metadata" in filters:
        filters = {"metadata": json.dumps(filters["metadata"])}
    assert numbers(client.call("GET traces", filters)) == found
    assert client.call("GET plan", {"evaluator": "refusal", "half_width": 0.2, **filters})
    exported = client.call("POST replays", {"evaluators": ["latency"], "dry_run": True, **filters})
    assert exported["count"] == len(found)


@pytest.mark.parametrize(
    ("where", "says"),
    [("metadata.a.b = 'x'", 'metadata."a.b"'), ("tag LIKE 'b%'", "tag IN")],
)
def test_conditions_that_cannot_be_read_say_how_to_write_them(where: str, says: str) -> None:
    """The message holds the fix."""
    with pytest.raises(ValueError, match="where") as refused:
        condition(where)
    assert says in str(refused.value)


def test_metrics_are_grouped(client: Client) -> None:
    """By release, by tag (a trace counts for each of its tags), by a key of the metadata, whatever it is called."""

    def groups(name: str, by: str) -> dict[Any, float]:
        answer = client.call("GET metrics", {"name": name, "group_by": json.dumps([by]), "step": "all", "from": "-1h"})
        return {line["group"][by]: line["points"][0]["value"] for line in answer["series"]}

    assert groups("requests", "release") == {"1.4.2": 1, "1.4.3": 2, None: 1}
    assert groups("requests", "tag") == {"beta": 1, "eu": 2, None: 2}
    assert groups("requests", "metadata.tenant") == {"acme": 1, "globex": 1, None: 2}
    assert groups("requests", f"metadata.{HOSTILE}") == {"x": 1, None: 3}
    assert groups("requests", "metadata.unknown") == {None: 4}
    until(client, "SELECT * FROM scores WHERE evaluator = 'refusal'", 4)
    for by in ("tag", "metadata.tenant", f"metadata.{HOSTILE}"):
        quality = eventually(lambda by=by: groups("quality:refusal", by))  # type: ignore[misc]
        assert set(quality) == set(groups("requests", by))
    for by, found in (("tag", {"beta", "eu", None}), (f"metadata.{HOSTILE}", {"x", None}), ("metadata.\0", {None})):
        blame = client.call("GET blame", {"group_by": json.dumps([by]), "step": "all", "from": "-1h"})
        assert {one["group"][by] for one in blame["cells"]} == found
    with pytest.raises(ClientError, match="possible: service"):
        client.call("GET metrics", {"name": "requests", "group_by": "tenant"})


def test_facets_list_tags_and_the_keys_of_metadata(client: Client) -> None:
    """The values to choose from, with the page that links them."""
    facets = client.call("GET traces", {"facets": "true"})["facets"]
    assert facets["tag"] == [{"value": "eu", "n": 2}, {"value": "beta", "n": 1}]
    assert facets["metadata.tenant"] == [{"value": "acme", "n": 1}, {"value": "globex", "n": 1}]
    assert facets["release"][0] == {"value": "1.4.3", "n": 2}
    query = urllib.parse.urlencode({"metadata.tenant": "acme", "group_by": "metadata.tenant"})
    for path in ("/traces", "/facets", "/", f"/traces/{2:032x}"):
        with urllib.request.urlopen(f"{client.url}{path}?{query}") as page:
            assert "acme" in page.read().decode()


def test_ten_thousand_keys_do_no_harm(collector: Callable[..., Collector]) -> None:
    """One trace with 10,000 keys of its own: filters and groups work, and the choice of keys stays short."""
    client = filled(connect(collector().url))
    many = {f"key-{number}": f"value-{number}" for number in range(10_000)}
    send(client.url, rag_trace(5, metadata=json.dumps(many | {"tenant": "acme"})))
    until(client, "SELECT * FROM traces WHERE decided", 5)
    assert numbers(client.call("GET traces", {"metadata.key-9999": "value-9999"})) == {5}
    assert numbers(client.call("GET traces", {"metadata.tenant": "acme"})) == {1, 5}
    assert numbers(client.call("GET traces", {"metadata.no-such-key": "x"})) == set()
    facets = client.call("GET traces", {"facets": "true"})["facets"]
    assert len([name for name in facets if name.startswith("metadata.")]) <= 100
    assert facets["metadata.tenant"] == [{"value": "acme", "n": 2}, {"value": "globex", "n": 1}]


def test_sides_are_compared(client: Client) -> None:
    """Tenants, releases and tags as sides of a comparison, within each value of a key."""
    until(client, "SELECT * FROM scores WHERE evaluator = 'refusal'", 4)
    for a, b in (
        ("metadata.tenant:acme", "metadata.tenant:globex"),
        ("release:1.4.2", "release:1.4.3"),
        ("tag:beta", "tag:eu"),
    ):
        found = client.call("GET compare", {"a": a, "b": b, "evaluator": "refusal", "by": "metadata.tenant"})
        assert found["a"]["n"] == 1
        assert found["by"] == "metadata.tenant"
    with pytest.raises(ClientError, match="several tags"):
        client.call("GET compare", {"a": "tag:beta", "b": "tag:eu", "evaluator": "refusal", "by": "tag"})


def test_a_dip_is_explained_by_tenant_and_tag(collector: Callable[..., Collector]) -> None:
    """The slow requests are those of one tenant, with one tag."""
    client = connect(collector().url)
    for number in range(1, 25):
        slow = number % 2 == 0
        stated = {"tag.tags": ["beta", "eu"] if slow else ["eu"], "metadata": json.dumps({"tenant": "ab"[slow]})}
        send(client.url, rag_trace(number, latency_ms=5000.0 if slow else 100.0, **stated))
    until(client, "SELECT * FROM traces WHERE decided", 24)
    found = client.call("GET explain", {"metric": "latency_p50", "from": "-1h", "sel_lo": 1000})["attributes"]
    shares = {(one["attribute"], one["value"]): (one["selected"]["share"], one["baseline"]["share"]) for one in found}
    assert shares["tag", "beta"] == shares["metadata.tenant", "b"] == (1.0, 0.0)
    assert shares["tag", "eu"] == (1.0, 1.0)


def test_rules_and_strata_decide_by_them(collector: Callable[..., Collector]) -> None:
    """Only the tenant of `where` is drawn; the stratum's tag raises the rate."""
    client = connect(collector().url)
    rule = {
        "name": "acme",
        "evaluators": ["latency"],
        "rate": 0.0,
        "where": "metadata.tenant = 'acme'",
        "strata": [{"where": "tag = 'beta'", "rate": 1.0}],
    }
    client.call("POST rules", rule)
    assert Rule(**rule).chance_sql()
    for number, (tenant, tag) in enumerate((("acme", "beta"), ("acme", "ga"), ("globex", "beta")), start=1):
        send(client.url, rag_trace(number, metadata=json.dumps({"tenant": tenant}), **{"tag.tags": [tag]}))
    until(client, "SELECT * FROM decisions WHERE evaluator = 'latency'", 3)
    drawn = client.sql("SELECT trace_id, pi FROM decisions WHERE evaluator = 'latency' ORDER BY 1").rows()
    assert [row["pi"] for row in drawn] == [1.0, 0.0, 0.0]


def test_the_first_version_gains_the_columns(tmp_path: Path) -> None:
    """The file of 0.1 keeps its traces; what they said is unknown, what comes is filled."""
    path = tmp_path / "store.duckdb"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    store = EmbeddedStore(path, decode=lambda body: None)  # type: ignore[arg-type,return-value]
    try:
        found = store.read("SELECT count(*), count(tags), count(metadata), typeof(any_value(metadata)) FROM traces")
        assert found.rows == [(24, 0, 0, "MAP(VARCHAR, VARCHAR)")]
    finally:
        store.close()


def test_monitors_read_each_tenant(tmp_path: Path) -> None:
    """A reading for each value of a key and for each tag, of traffic and of quality."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(20):
        units.scored(number, "groundedness", float(number % 2), at=T0, facts={"latency_ms": 100.0 + number % 2 * 900})
    units.save()
    sql = (
        "UPDATE raw.trace_facts SET tags = ['all'], metadata = MAP {'tenant': CASE WHEN latency_ms > 500 THEN 'b' END}"
    )
    store.write(lambda transaction: transaction.execute(sql)).result()
    window = Window(T0 - timedelta(hours=1), T0 + timedelta(hours=1), 0)

    def read(metric: str, by: str) -> dict[str, float | None]:
        found = readings(store, metric, Query(window=window, groups=columns_of([by]), now=window.last), parse("< 1"))
        return {group: read(0.95).value for group, read in found.items()}

    by_tenant = {'{"metadata.tenant": "b"}': 1.0, '{"metadata.tenant": null}': 0.0}
    assert read("quality:groundedness", "metadata.tenant") == by_tenant
    assert set(read("latency_p50", "metadata.tenant")) == set(by_tenant)
    assert read("quality:groundedness", "tag") == {'{"tag": "all"}': 0.5}
    assert read("requests", "tag") == {'{"tag": "all"}': 20}
    group = having({"metadata.tenant": ["b"], "tag": ["all"]})
    rows = store.read(f"SELECT count(*) FROM traces WHERE {group.sql}", group.parameters).rows
    assert rows == [(10,)]
    store.close()
