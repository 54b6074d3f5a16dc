import logfire
from asking import DOCUMENTS, MODEL, ask

logfire.configure(send_to_logfire=False, console=False, service_name="logfire")
import openai

logfire.instrument_openai()
client = openai.OpenAI(max_retries=0)


@logfire.instrument("answer {question=}", record_return=True)
def answer(question: str) -> str:
    messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
    chunks = client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


ask(answer)
logfire.force_flush()
