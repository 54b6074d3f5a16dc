from asking import DOCUMENTS, MODEL, MODEL_URL, OTLP_URL, ask
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai_like import OpenAILike
from llama_index.observability.otel import LlamaIndexOpenTelemetry
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

telemetry = LlamaIndexOpenTelemetry(
    span_exporter=OTLPSpanExporter(endpoint=f"{OTLP_URL}/v1/traces"), span_processor="simple"
)
telemetry.start_registering()


class Search(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=f"d{number}", text=text), score=0.9)
            for number, text in enumerate(DOCUMENTS)
        ]


llm = OpenAILike(model=MODEL, api_base=MODEL_URL, api_key="none", is_chat_model=True, max_retries=0)
engine = RetrieverQueryEngine.from_args(Search(), llm=llm)
ask(engine.query)
