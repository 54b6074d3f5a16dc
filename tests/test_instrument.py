"""Applications without a decorator, from genuine libraries to the collector's rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopback import LoopbackModel
from waiting import until

from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

ROOT = Path(__file__).parents[1]
Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], LoopbackModel]
TWICE = """
import openai, ragpulse
ragpulse.configure()
ragpulse.instrument("openai")

@ragpulse.llm
def generate(question):
    messages = [{"role": "user", "content": question}]
    return openai.OpenAI().chat.completions.create(model="gpt-4o-mini", messages=messages)

@ragpulse.rag
def answer(question):
    return generate(question).choices[0].message.content

answer("What is the capital of France?")
assert ragpulse.flush(20)
"""

TOGETHER = """
import asyncio, openai, ragpulse
ragpulse.configure()
ragpulse.instrument("openai", "langchain")
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate

class Model(SimpleChatModel):
    _llm_type = "chat"

    def _call(self, messages, stop=None, run_manager=None, **options):
        raise NotImplementedError

    async def _agenerate(self, messages, stop=None, run_manager=None, **options):
        asked = [{"role": "user", "content": messages[0].content}]
        said = await openai.AsyncOpenAI().chat.completions.create(model="gpt-4o-mini", messages=asked)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said.choices[0].message.content))])

async def main():
    chain = ChatPromptTemplate.from_template("{question}") | Model() | StrOutputParser()
    await asyncio.gather(*(chain.ainvoke({"question": f"Question {number}?"}) for number in range(4)))

asyncio.run(main())
assert ragpulse.flush(20)
"""


def _trace(running: Collector, program: list[str], **environment: str) -> dict[str, Any]:
    """The only trace with the query, after the program has run."""
    command = [sys.executable, "-W", "ignore", *program]
    subprocess.run(command, env={**os.environ, "RAGPULSE_URL": running.url, **environment}, check=True, timeout=300)
    query = "select * from traces where decided and query = 'What is the capital of France?'"
    (trace,) = until(connect(running.url), query)
    return trace


def test_a_call_that_is_decorated_and_instrumented_is_paid_once(collector: Start, loopback_model: StartModel) -> None:
    """Both spans state the tokens; the trace has the provider's numbers, the model and what they cost."""
    model = loopback_model(lambda prompt: "Paris.")
    trace = _trace(collector(), ["-c", TWICE], OPENAI_BASE_URL=model.url, OPENAI_API_KEY="k")
    assert (trace["response"], trace["model"]) == ("Paris.", "gpt-4o-mini")
    assert (trace["input_tokens"], trace["output_tokens"]) == (120, 5)
    assert 0 < trace["cost_usd"] < 0.001


def test_async_chains_keep_their_clients_apart(collector: Start, loopback_model: StartModel) -> None:
    """Of four chains at once each has its own call of the instrumented client in its trace, and its tokens once."""
    running = collector()
    model = loopback_model(lambda prompt: f"It is {prompt}")
    environment = os.environ | {"RAGPULSE_URL": running.url, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "k"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", TOGETHER], env=environment, check=True, timeout=300)
    client = connect(running.url)
    found = until(
        client, "select response, input_tokens from traces where decided and input_tokens is not null order by 1", 4
    )
    assert [row["input_tokens"] for row in found] == [120] * 4
    assert [row["response"] for row in found] == [f"It is Question {number}?" for number in range(4)]
    calls = "select s.response, t.response as of_trace from spans s join traces t using (trace_id)"
    for row in client.sql(f"{calls} where s.name = 'ChatCompletion'").rows():
        assert row["response"] == row["of_trace"]


def test_a_chain_without_a_decorator_is_scored(collector: Start) -> None:
    """LangChain by two lines: query, response, contexts, and the offline checks' scores."""
    running = collector()
    trace = _trace(running, [str(ROOT / "examples" / "existing_langchain.py")])
    assert trace["response"] == "Paris."
    client = connect(running.url)
    (context,) = client.sql("select text from contexts where text is not null").rows()
    assert context["text"] == "Paris is the capital of France."
    until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'")
