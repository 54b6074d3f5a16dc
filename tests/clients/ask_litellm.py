import os
import time

os.environ["USE_OTEL_LITELLM_REQUEST_SPAN"] = "true"  # else it writes on the application's span, often after its end
import litellm
from asking import DOCUMENTS, MODEL, ask, provider
from litellm.integrations.opentelemetry import OpenTelemetry

traces = provider()
litellm.callbacks = [OpenTelemetry(tracer_provider=traces)]
litellm.telemetry = False
tracer = traces.get_tracer("application")


def answer(question):
    messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
    with tracer.start_as_current_span("answer"):
        return litellm.completion(model=f"openai/{MODEL}", messages=messages, num_retries=0).choices[0].message.content


ask(answer)
time.sleep(1)  # it exports from a thread of its own
