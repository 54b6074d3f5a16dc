import openai
from asking import DOCUMENTS, MODEL, ask, provider
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

traces = provider()
OpenAIInstrumentor().instrument(tracer_provider=traces)
client = openai.OpenAI(max_retries=0)
tracer = traces.get_tracer("application")


def answer(question):
    messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
    with tracer.start_as_current_span("answer"):
        return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


ask(answer)
