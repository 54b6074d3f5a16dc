import openai
from asking import ask, complete, provider
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

traces = provider()
OpenAIInstrumentor().instrument(tracer_provider=traces)
client = openai.OpenAI(max_retries=0)
tracer = traces.get_tracer("application")


def answer(question):
    with tracer.start_as_current_span("answer"):
        return complete(client, question)


ask(answer)
