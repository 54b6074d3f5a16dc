"""`/datasets`: questions chosen from traces, to download, to replay, and to compare versions on."""

import csv
import io
import json
import pprint
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site, read_form, see_other, segment
from ragpulse_dashboards.view import FILTERS, METADATA

__all__ = ["routes"]

CHOICE: Final = (
    "from", "to", *FILTERS, "evaluator", "failing", "outcome", "evaluated_from", "document", "sort", "min_score",
    "max_score",
)  # fmt: skip
"""What the trace list was narrowed to."""
KINDS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv", "py": "text/x-python"}
CSV_COLUMNS: Final = ("query", "response", "trace_id", "at", "latency_ms", "cost_usd")
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
    again = Case(query=case["query"], response=answer(case), reference=case["response"])
    (result,) = evaluate_sync([again], ["token_f1"])["token_f1"]
    assert result.normalized >= 0.5, result.explanation
'''


def routes(site: Site) -> list[BaseRoute]:
    """The list, one dataset with its files, and the forms that fill and delete it."""
    return [
        site.page("/datasets", datasets),
        site.page("/datasets", fill, post=True),
        site.page("/datasets/{name}", dataset),
        site.page("/datasets/{name}/{kind}", download),
        site.page("/datasets/{name}/delete", delete, post=True),
    ]


async def datasets(site: Site, request: Request) -> Response:
    """Every dataset with its size."""
    answer = await site.api("GET datasets", {})
    return site.render(request, "datasets.html", {"datasets": answer["datasets"]})


async def dataset(site: Site, request: Request) -> Response:
    """The questions and what was answered then; where to go with them."""
    name = segment(request.path_params["name"])
    answer = await site.api(f"GET datasets/{name}", {})
    context = {
        "name": name,
        "items": answer["items"],
        "replay_url": "/replays?" + urlencode({"dataset": name, "from": "-30d"}),
        "compare_url": "/compare?" + urlencode({"dataset": name, "from": "-30d"}),
        "traces_url": "/traces?" + urlencode({"dataset": name, "from": "-30d"}),
        "more": request.query_params.get("more"),
    }
    return site.render(request, "dataset.html", context)


async def fill(site: Site, request: Request) -> Response:
    """Add the selected traces, or all that the list was narrowed to."""
    form = await read_form(request)
    name = segment(form.get("dataset_name", "").strip())
    selected = [] if form.get("all") else form.getlist("trace_id")
    wanted = [key for key in form if (key in CHOICE or key.startswith(METADATA)) and form[key]]
    chosen = {"trace_ids": selected} if selected else {key: form[key] for key in wanted}
    answer = await site.api(f"POST datasets/{name}", chosen)
    more = "?more=true" if answer.get("more") else ""
    return see_other(f"/datasets/{urlencode({'': name}, errors='replace')[1:].replace('+', '%20')}{more}")


async def download(site: Site, request: Request) -> Response:
    """One file: JSON lines as `ragpulse freeze` writes them, CSV, or a test."""
    name, kind = segment(request.path_params["name"]), request.path_params["kind"]
    if kind not in KINDS:
        raise ApiError(404, "A dataset can be downloaded as jsonl, csv or py.")
    items = (await site.api(f"GET datasets/{name}", {})).get("items") or []
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    filename = f"{'test_' if kind == 'py' else ''}{safe}.{kind}"
    headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(_file(kind, items).encode("utf-8", "replace"), media_type=KINDS[kind], headers=headers)


def _file(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    if kind == "jsonl":
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in items)
    if kind == "py":
        cases = [{"query": one["query"], "response": one["response"]} for one in items if one.get("response")]
        return PYTEST.replace("{cases}", pprint.pformat(cases, width=110, sort_dicts=False))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    writer.writerows([_cell(one.get(column)) for column in CSV_COLUMNS] for one in items)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet runs what starts like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


async def delete(site: Site, request: Request) -> Response:
    """Delete a dataset; its traces stay."""
    await site.api(f"DELETE datasets/{segment(request.path_params['name'])}", {})
    return see_other("/datasets")
