import os

import logfire
from asking import ask, complete

os.environ.setdefault("LOGFIRE_SEND_TO_LOGFIRE", "false")
logfire.configure(send_to_logfire=False, console=False, service_name="logfire")
import openai
from fastapi import FastAPI
from fastapi.testclient import TestClient

logfire.instrument_openai()
app = FastAPI()
logfire.instrument_fastapi(app)
client = openai.OpenAI(max_retries=0)


@app.post("/ask")
def answer(question: str) -> str:
    return complete(client, question)


ask(lambda question: TestClient(app).post("/ask", params={"question": question}).json())
logfire.force_flush()
