import os

os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"
from asking import DOCUMENTS, MODEL, ask, provider
from haystack import Document, Pipeline, tracing
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

traces = provider()
try:
    from haystack.tracing.opentelemetry import OpenTelemetryTracer
except ImportError:
    from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
tracing.enable_tracing(OpenTelemetryTracer(traces.get_tracer("haystack")))
tracing.tracer.is_content_tracing_enabled = True
store = InMemoryDocumentStore()
store.write_documents([Document(content=text) for text in DOCUMENTS])
template = [
    ChatMessage.from_user("{% for document in documents %}{{ document.content }}\n{% endfor %}Question: {{ question }}")
]
pipeline = Pipeline()
pipeline.add_component("retriever", InMemoryBM25Retriever(store))
pipeline.add_component("prompt", ChatPromptBuilder(template, required_variables="*"))
pipeline.add_component("llm", OpenAIChatGenerator(model=MODEL, max_retries=0))
pipeline.connect("retriever.documents", "prompt.documents")
pipeline.connect("prompt.prompt", "llm.messages")
ask(lambda question: pipeline.run({"retriever": {"query": question}, "prompt": {"question": question}}))
