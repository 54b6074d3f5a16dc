"""`/datasets`: questions from traces, to download, to replay, and to compare versions on."""

import json
import pprint
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.api.headers import SECURITY_HEADERS
from ragpulse_collector.operations.datasets import Dataset, DatasetFilled, DatasetList
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store.queries.datasets import Item
from ragpulse_collector.words.figures import csv_text
from ragpulse_dashboards.formats import urlencode
from ragpulse_dashboards.site import FILTERS, MEMBERS, Site, link, read_form, see_other, segment

SELECTION: Final = (
    "from", "to", *FILTERS, "evaluator", "failing", "outcome", "evaluated_from", "document", "sort", "min_score",
    "max_score",
)  # fmt: skip
"""Parameters of the trace list that select traces."""
FILLED: Final = ("asked", "added", "new", "more")
"""Parameters with what filling a dataset did."""
KINDS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv", "py": "text/x-python"}
CSV_COLUMNS: Final = ("query", "response", "reference", "trace_id", "at", "latency_ms", "cost_usd")
PYTEST: Final = '''"""The questions of a dataset of ragpulse: does the application still say what it said?

Let `answer` call your application; the recorded answers stand there until then.
"""

import pytest

from ragpulse_evaluators import Case, evaluate_sync

CASES = {cases}


def answer(case):
    """Return what your application answers to case["query"] now."""
    return case["response"]


@pytest.mark.parametrize("case", CASES, ids=[case["query"][:60] for case in CASES])
def test_answer(case):
    again = Case(query=case["query"], response=answer(case), reference=case["reference"])
    (result,) = evaluate_sync([again], ["token_f1"])["token_f1"]
    assert result.normalized >= 0.5, result.explanation
'''


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, one dataset with its files, and the forms that fill and delete it."""
    return [
        site.page("/datasets", datasets),
        site.page("/datasets", fill, post=True),
        site.page("/datasets/{name}", dataset, reads=FILLED),
        site.page("/datasets/{name}/{kind}", download),
        site.page("/datasets/{name}/delete", delete, post=True),
    ]


async def datasets(site: Site, request: Request) -> Response:
    """List every dataset with its size."""
    found: DatasetList = await site.api("GET datasets", {})
    return site.render(request, "datasets.html", {"datasets": found.datasets})


async def dataset(site: Site, request: Request) -> Response:
    """Show the questions with the recorded answers, and what to do with them."""
    name = segment(request.path_params["name"])
    found: Dataset = await site.api(f"GET datasets/{name}", {})
    context = {
        "name": name,
        "items": found.items,
        **{
            f"{page}_url": link(f"/{page}", {"dataset": name, "from": "-30d"})
            for page in ("replays", "compare", "traces")
        },
        "filled": {name: request.query_params.get(name, "") for name in FILLED},
    }
    return site.render(request, "dataset.html", context)


async def fill(site: Site, request: Request) -> Response:
    """Add the selected traces, or all traces of the filtered list."""
    form = await read_form(request)
    name = segment(form.get("dataset_name", "").strip())
    selected = [] if form.get("all") else form.getlist("trace_id")
    filters = {key: form[key] for key in form if (key in SELECTION or key.startswith(MEMBERS)) and form[key]}
    filled: DatasetFilled = await site.api(f"POST datasets/{name}", {"trace_ids": selected} if selected else filters)
    said = {"asked": filled.asked, "added": filled.added, "new": filled.new, "more": "true" if filled.more else ""}
    return see_other(link(f"/datasets/{urlencode(name)}", said))


async def download(site: Site, request: Request) -> Response:
    """Send one file: JSON lines as `ragpulse freeze` writes them, CSV, or a test."""
    name, kind = segment(request.path_params["name"]), request.path_params["kind"]
    if kind not in KINDS:
        raise NotFound("A dataset can be downloaded as jsonl, csv or py.")
    found: Dataset = await site.api(f"GET datasets/{name}", {})
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    filename = f"{'test_' if kind == 'py' else ''}{safe}.{kind}"
    headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(_file(kind, found.items).encode("utf-8", "replace"), media_type=KINDS[kind], headers=headers)


def _file(kind: str, items: Sequence["Item"]) -> str:
    if kind == "jsonl":
        return "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)
    if kind == "py":
        cases = [_case(item) for item in items if item.response or item.reference]
        return PYTEST.replace("{cases}", pprint.pformat(cases, width=110, sort_dicts=False))
    return csv_text([CSV_COLUMNS, *([getattr(item, column) for column in CSV_COLUMNS] for item in items)])


def _case(item: "Item") -> dict[str, str | list[str] | None]:
    """Return question, recorded answer and what is expected: the reference, else the recorded answer."""
    return {"query": item.query, "response": item.response or "", "reference": item.reference or item.response}


async def delete(site: Site, request: Request) -> Response:
    """Delete a dataset; its traces stay."""
    await site.api(f"DELETE datasets/{segment(request.path_params['name'])}", {})
    return see_other("/datasets")
