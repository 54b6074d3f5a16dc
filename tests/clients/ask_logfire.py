import os

import logfire
from asking import DOCUMENTS, MODEL, ask

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
    messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
    return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


ask(lambda question: TestClient(app).post("/ask", params={"question": question}).json())
logfire.force_flush()
