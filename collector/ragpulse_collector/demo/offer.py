"""`POST demo` and `DELETE demo`: generated traffic for a first look, and its removal."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from ragpulse_collector.analysis.overview import DEMO_SERVICE
from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.api.answers import Deleted, DemoTraffic
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.api.params import Params
from ragpulse_collector.store import Store
from ragpulse_collector.store.connection import utc_now
from ragpulse_collector.store.queries.health import spans_of_service
from ragpulse_collector.store.retention import prune_service


def operations(store: Store) -> tuple[Operation, ...]:
    """Return the two operations over a store."""
    return (
        Operation(
            "POST demo",
            partial(load, store),
            "Make generated traffic of the last hours, as the service `demo`.",
            answer=DemoTraffic,
            scope="admin",
        ),
        Operation(
            "DELETE demo",
            partial(remove, store),
            "Remove everything of the service `demo`.",
            answer=Deleted,
            scope="admin",
        ),
    )


def load(store: Store, params: Params) -> dict[str, Any]:
    """Store the traffic; raises PermissionError (409) where it is stored already. Evaluation follows."""
    from ragpulse_collector.demo.traffic import traffic, visits

    del params
    if spans_of_service(store, DEMO_SERVICE):
        raise PermissionError("demo data is stored already: DELETE demo removes it")
    planned = visits()
    first, last = (iso(utc_now() - ago) for ago in (max(visit.ago for visit in planned), timedelta(0)))
    for body in traffic(planned):
        store.submit(body).result()
    return {"service": DEMO_SERVICE, "traces": len(planned), "from": first, "to": last}


def remove(store: Store, params: Params) -> dict[str, Any]:
    """Delete the traces of the service with all their data; the audit records it."""
    return {"deleted": prune_service(store, DEMO_SERVICE, actor=params.caller.actor).rows}
