import os

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"  # it accepts only true and false
import openai
import openlit
from asking import DOCUMENTS, MODEL, ask, provider

traces = provider()
openlit.init(disable_metrics=True)
client = openai.OpenAI(max_retries=0)


@openlit.trace
def answer(question):
    messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
    return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


ask(answer)
traces.force_flush()
