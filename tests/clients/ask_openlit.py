import os

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"  # it accepts only true and false
import openai
import openlit
from asking import ask, complete, provider

traces = provider()
openlit.init(disable_metrics=True)
client = openai.OpenAI(max_retries=0)


@openlit.trace
def answer(question):
    return complete(client, question)


ask(answer)
traces.force_flush()
