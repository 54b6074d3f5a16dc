"""The whole way: decorate → OTLP over a socket → store → decide → evaluate with a judge → metrics → page."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from loopback import LoopbackModel
from waiting import until

import ragpulse
from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], LoopbackModel]


@pytest.fixture(autouse=True)
def _sdk_ends() -> Iterator[None]:
    """Leave no exporter thread behind."""
    yield
    ragpulse.shutdown(timeout=60)


@ragpulse.retriever
def search(query: str) -> list[dict[str, Any]]:
    """Find two passages."""
    return [
        {"id": "towers.md", "text": "The Eiffel Tower is 330 metres tall. It stands in Paris.", "score": 0.9},
        {"id": "rivers.md", "text": "The Seine flows through Paris.", "score": 0.4},
    ]


@ragpulse.llm(model="gpt-5-mini", provider="openai", response=lambda result: result["text"])
def generate(question: str, docs: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """Answer with a given text."""
    return {"text": text, "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


@ragpulse.rag(prompt_name="qa", prompt_version="v7", query="question")
def answer(question: str, text: str = "The Eiffel Tower is 330 metres tall.") -> str:
    """The decorated application."""
    return str(generate(question, search(question), text)["text"])


def verdict(prompt: str) -> str:
    """Judge by rule: an answer that speaks of gold is unfaithful."""
    return "NO" if "gold" in prompt else "YES"


def test_offline_checks_score_without_a_key_or_a_file(collector: Start) -> None:
    """A plain collector shows a quality number for the first decorated call."""
    running = collector()
    ragpulse.configure(service_name="helpdesk", endpoint=running.url, isolated=True)
    assert answer("How tall is the Eiffel Tower?") == "The Eiffel Tower is 330 metres tall."
    assert ragpulse.flush(timeout=60)
    client = connect(running.url)
    scores = until(client, "select * from scores where status = 'ok' and evaluator = 'groundedness'", 1)
    assert scores[0]["normalized"] > 0.5
    assert scores[0]["pi"] == 1.0
    metric = client.metrics("quality:groundedness", from_="-1h", step="1d")
    (point,) = [point for series in metric["series"] for point in series["points"] if point["n"]]
    assert point["n"] == 1
    assert point["lo"] <= point["value"] <= point["hi"]


def test_the_trace_is_stored_as_canonical_rows(collector: Start) -> None:
    """Question, answer, contexts, tokens, cost and prompt version of the decorated call are in the views."""
    running = collector()
    ragpulse.configure(service_name="helpdesk", endpoint=running.url, isolated=True)
    answer("How tall is the Eiffel Tower?")
    ragpulse.flush(timeout=60)
    client = connect(running.url)
    (trace,) = until(client, "select * from traces where decided", 1)
    assert trace["query"] == "How tall is the Eiffel Tower?"
    assert (trace["service"], trace["prompt_version"], trace["model"]) == ("helpdesk", "v7", "gpt-5-mini")
    assert (trace["input_tokens"], trace["output_tokens"], trace["n_spans"]) == (100, 20, 3)
    assert trace["cost_usd"] > 0
    kinds = {row["kind"] for row in client.sql("select kind from spans").rows()}
    assert kinds == {"rag", "retriever", "llm"}
    contexts = client.sql("select rank, id, text, score from contexts order by rank").rows()
    assert [context["id"] for context in contexts] == ["towers.md", "rivers.md"]


EXACT = {
    "sentences": (["Sentence one.", "Sentence two."], "Sentence one.\nSentence two."),
    "a text in JSON": ('["a", "b"]', '["a", "b"]'),
    "an object as text": ('{"answer": "yes", "why": "so"}', '{"answer": "yes", "why": "so"}'),
    "calls of tools": (
        {"choices": [{"message": {"tool_calls": [{"function": {"name": "find", "arguments": '{"text": "x"}'}}]}}]},
        None,  # no answer to be scored: the attributes keep the names and arguments
    ),
    "a type": (object(), None),
}
DOCUMENTS = ["Paris.", None, {"text": ""}, {"text": "\ud800 Rome."}, {"id": UUID(int=7), "text": "Oslo."}]


def test_what_is_recorded_is_what_is_stored(collector: Start) -> None:
    """No response is cut to its first part, and one bad document leaves the others where they are."""
    running = collector()
    ragpulse.configure(service_name="helpdesk", endpoint=running.url, isolated=True)
    for name, (result, _) in EXACT.items():
        ragpulse.rag(name=name)(lambda question, result=result: result)("q")
    ragpulse.retriever(name="documents")(lambda query: DOCUMENTS)("q")
    tracer = ragpulse.tracer_provider().get_tracer("a graph of LangChain")
    said = '{"messages": [{"type": "human", "data": {"content": "q"}}, {"type": "ai", "data": {"content": "a"}}]}'
    tracer.start_span("graph", attributes={"openinference.span.kind": "CHAIN", "output.value": said}).end()
    assert ragpulse.flush(timeout=60)
    client = connect(running.url)
    rows = until(client, "select name, response from spans", len(EXACT) + 2)
    stored = {row["name"]: row["response"] for row in rows}
    assert stored == {**{name: said for name, (_, said) in EXACT.items()}, "documents": None, "graph": "a"}
    (odd,) = client.sql("select trace_id from spans where name = 'a type'").rows()
    with urllib.request.urlopen(f"{running.url}/traces/{odd['trace_id']}", timeout=60) as page:
        assert "a type returned builtins.object, in which ragpulse finds no response" in page.read().decode()
    contexts = client.sql("select id, text from contexts order by rank").rows()
    assert [(context["id"], context["text"]) for context in contexts] == [
        (None, "Paris."), (None, None), (None, None), (None, "? Rome."), (str(UUID(int=7)), "Oslo.")
    ]  # fmt: skip


def test_a_passage_is_named_by_its_own_id_or_its_document(collector: Start) -> None:
    """An id in the metadata, as users of LangChain have it; pages, filter and `citation_check` know both names."""
    running = collector()
    ragpulse.configure(service_name="helpdesk", endpoint=running.url, isolated=True)
    found = [
        {"page_content": "Refunds are possible within thirty days.", "metadata": {"id": "faq-12", "source": "faq.md"}},
        {"page_content": "The parcel takes two days.", "metadata": {"source": "docs/parcels.md"}},
        {"id": "bare", "score": 0.5},
    ]
    said = "Refunds are possible within thirty days [faq-12]. The parcel takes two days [docs/parcels.md]."
    passages = ragpulse.retriever(name="passages")(lambda query: found)
    ragpulse.rag(name="cite")(lambda question: passages(question) and said)("How long?")
    ragpulse.retriever(name="bare")(lambda query: [{"id": 7, "plot": "A thief."}])("q")
    ragpulse.retriever(name="plots", contexts="plot")(lambda query: [{"id": 7, "plot": "A thief."}])("q")
    assert ragpulse.flush(timeout=60)
    client = connect(running.url)
    (score,) = until(client, "select * from scores where evaluator = 'citation_check' and status = 'ok'", 1)
    assert score["score"] == 1.0
    trace = score["trace_id"]
    rows = client.sql("select id, source from contexts where trace_id = ? order by rank", [trace]).rows()
    assert [(row["id"], row["source"]) for row in rows] == [
        ("faq-12", "faq.md"), (None, "docs/parcels.md"), ("bare", None)
    ]  # fmt: skip
    with urllib.request.urlopen(f"{running.url}/traces/{trace}", timeout=60) as page:
        shown = page.read().decode()
    assert "faq-12</a>" in shown
    assert "docs/parcels.md</a>" in shown
    assert "no id" not in shown
    for name in ("faq-12", "faq.md", "docs/parcels.md"):
        assert [row["trace_id"] for row in client.call("GET traces", {"document": name})["traces"]] == [trace]
    documents = client.call("GET documents")["documents"]
    assert {"faq.md", "docs/parcels.md"} <= {document["source"] for document in documents}
    with urllib.request.urlopen(f"{running.url}/documents", timeout=60) as page:
        assert "docs/parcels.md</a>" in page.read().decode()
    unread = client.sql("select name, attributes->>'$.\"ragpulse.result.unread\"' as why from spans").rows()
    reasons = {row["name"]: row["why"] for row in unread if row["why"]}
    assert list(reasons) == ["bare"]
    assert 'finds contexts without text; write @ragpulse.retriever(contexts="the field' in reasons["bare"]


@pytest.mark.filterwarnings("default")  # warnings inside litellm are not ours to mend
def test_a_judge_scores_live_traffic_and_the_page_shows_it(
    collector: Start, loopback_model: StartModel, tmp_path: Path
) -> None:
    """A loopback judge through litellm scores every unit; metric and page in a real browser agree."""
    model = loopback_model(verdict)
    running = collector(
        judge={"model": "openai/judge", "api_base": model.url}, rules=[("faithfulness-live", "faithfulness", 1.0)]
    )
    ragpulse.configure(service_name="helpdesk", endpoint=running.url, isolated=True)
    for number in range(4):
        answer(f"How tall is tower {number}?", text="It is made of gold." if number == 0 else "It is 330 metres tall.")
    ragpulse.flush(timeout=60)
    client = connect(running.url)
    scores = until(client, "select * from scores where evaluator = 'faithfulness' and status = 'ok'", 4)
    assert sorted(score["normalized"] for score in scores) == [0.0, 1.0, 1.0, 1.0]
    assert all("openai/judge" in score["judge"] for score in scores)
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: the page was not looked at")
    _look_at_pages(running.url, scores[0]["trace_id"])


def _look_at_pages(url: str, trace_id: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=120_000)
        page = browser.new_page()
        page.set_default_timeout(120_000)
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(url + "/")
        page.get_by_text("faithfulness").first.wait_for()  # a busy machine reads the scores after the first paint
        page.goto(f"{url}/traces/{trace_id}")
        assert "Eiffel Tower is 330 metres" in page.inner_text("body")
        assert problems == []
        browser.close()
