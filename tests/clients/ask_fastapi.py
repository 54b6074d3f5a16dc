import openai
from asking import ask, complete, provider
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

traces = provider()
OpenAIInstrumentor().instrument(tracer_provider=traces)
client = openai.OpenAI(max_retries=0)
app = FastAPI()


@app.post("/ask")
def answer(question: str) -> str:
    return complete(client, question)


FastAPIInstrumentor.instrument_app(app, tracer_provider=traces)
ask(lambda question: TestClient(app).post("/ask", params={"question": question}).json())
