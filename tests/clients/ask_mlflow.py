import mlflow
import openai
from asking import DOCUMENTS, ask, complete
from mlflow.entities import Document, SpanType

mlflow.openai.autolog()  # the exporter is the one that OTEL_EXPORTER_OTLP_ENDPOINT names
client = openai.OpenAI(max_retries=0)


@mlflow.trace(span_type=SpanType.RETRIEVER)
def search(query):
    return [Document(page_content=text, id=f"d{number}") for number, text in enumerate(DOCUMENTS)]


@mlflow.trace
def answer(question):
    texts = "\n".join(document.page_content for document in search(question))
    return complete(client, question, texts)


ask(answer)
mlflow.flush_trace_async_logging()
