"""Datasets as HTML and as files."""

import json
import re
from html import unescape
from typing import Any

from .fake_api import FakeApi
from .reading import client


def test_traces_are_kept_as_a_dataset_and_downloaded() -> None:
    """All that match the filters, or the marked ones; files for a program, a spreadsheet and pytest."""
    api = FakeApi()
    pages = client(api)
    html = unescape(pages.get("/traces?from=-7d&model=gpt-5-mini&failing=true&metadata.tenant=acme").text)
    form = html.partition('id="dataset-form"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
    response = pages.post("/datasets", data={**fields, "dataset_name": "bad ones"})
    assert response.headers["location"] == "/datasets/bad%20ones?asked=5&added=3&new=3"
    assert api.calls[-1] == (
        "POST datasets/bad ones",
        {"from": "-7d", "model": "gpt-5-mini", "failing": "true", "metadata.tenant": "acme"},
    )
    both = {**fields, "dataset_name": "bad ones", "trace_id": ["a", "b"]}
    pages.post("/datasets", data={**both, "all": "true"})
    assert api.calls[-1][1]["failing"] == "true", "all that match, whatever is selected"
    pages.post("/datasets", data={"dataset_name": "bad ones", "trace_id": ["a", "b"], "from": "-7d"})
    assert api.calls[-1] == ("POST datasets/bad ones", {"trace_ids": ["a", "b"]})
    page = unescape(pages.get("/datasets/bad%20ones").text)
    assert "/compare?dataset=bad+ones&from=-30d" in page
    assert "/replays?dataset=bad+ones&from=-30d" in page
    compared = unescape(pages.get("/compare?dataset=bad+ones&from=-30d").text)
    assert "/compare?from=-30d&dataset=bad+ones&a=prompt%3Av6&b=prompt%3Av7" in compared, "two versions, one click on"
    lines = [json.loads(line) for line in pages.get("/datasets/bad%20ones/jsonl").text.splitlines()]
    assert lines[0]["query"] == "=1+1"
    assert "\r\n'=1+1," in pages.get("/datasets/bad%20ones/csv").text
    test = pages.get("/datasets/bad%20ones/py")
    assert 'filename="test_bad_ones.py"' in test.headers["content-disposition"]
    namespace: dict[str, Any] = {"__name__": "test_bad_ones"}
    exec(compile(test.text, "test_bad_ones.py", "exec"), namespace)
    namespace["test_answer"](namespace["CASES"][0])
    assert test.text.count("'query':") == 2  # an answer that failed is nothing to be like
