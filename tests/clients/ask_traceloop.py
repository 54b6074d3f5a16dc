import os

os.environ["TRACELOOP_TELEMETRY"] = "false"
from asking import DOCUMENTS, OTLP_URL, ask, complete
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import task, workflow

Traceloop.init(app_name="traceloop", api_endpoint=OTLP_URL, disable_batch=True, telemetry_enabled=False, api_key="none")
import openai

client = openai.OpenAI(max_retries=0)


@task(name="search")
def search(query):
    return [{"id": f"d{number}", "text": text, "score": 0.9 - number / 10} for number, text in enumerate(DOCUMENTS)]


@workflow(name="answer")
def answer(question):
    texts = "\n".join(document["text"] for document in search(question))
    return complete(client, question, texts)


ask(answer)
