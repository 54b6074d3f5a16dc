"""Every attribute name that the SDK puts on a span, a log record or a resource: the contract with the collector.

Three vocabularies meet here. `gen_ai.*` names follow the OpenTelemetry GenAI conventions, the names without a vendor
prefix (`input.value`, `session.id`, `llm.cost.total`, ...) follow OpenInference, and `ragpulse.*` names are our own and
win wherever two disagree. The module imports nothing, so that a reader of traces can depend on it for free.
"""

from typing import Final

# --- ragpulse: our own names, which win in mapping -------------------------------------------------------------------
SPAN_KIND: Final = "ragpulse.span.kind"
"""On every span of the SDK: rag, retriever, reranker, embedding, llm, tool, agent, chain (or a kind of the user's)."""
ENDED_EARLY: Final = "ragpulse.ended_early"
"""True when a stream was closed before its end (the response is the part that was read), or a call was cancelled."""
TRUNCATED: Final = "ragpulse.truncated"
"""JSON object: attribute name -> {"bytes": original UTF-8 length, "sha256": first 16 hex digits of the original}."""
REDACTED: Final = "ragpulse.redacted"
"""List of the redaction rules that replaced something on this span: key, card, email, or custom."""
RESULT_UNREAD: Final = "ragpulse.result.unread"
"""Why contexts or response are absent: the type of what the function returned, and the line that reads it."""
CONTENT_CAPTURED: Final = "ragpulse.content.captured"
"""False when texts were withheld on purpose, so that evaluators can say why they skip. Absent otherwise."""
VARIANT: Final = "ragpulse.variant"
"""The option of the experiment that this request was assigned to."""
VARIANT_PREFIX: Final = "ragpulse.variant."
"""Followed by an experiment's name; the value is the option chosen in that experiment."""
RESPONSE_MISSING_REASON: Final = "ragpulse.response.missing_reason"
"""Why there is no response: tool_calls, filtered, refused_by_provider, withheld, no_choice, cut, unread, ..."""
CONTROL_FLOW: Final = "ragpulse.control_flow"
"""What ended the function when that was no error: interrupt, handoff, retry, ignored, redirect, exit, cancelled, ..."""
RESPONSE_REFUSAL: Final = "ragpulse.response.refusal"
"""True when the response is the text of a refusal."""
USAGE_ESTIMATED: Final = "ragpulse.usage.estimated"
"""True when the token counts are not the provider's own."""
SCORE_SOURCE: Final = "ragpulse.score.source"
"""On evaluation results: who scored (`human` for feedback)."""
SCORE_SOURCE_HUMAN: Final = "human"

# --- OpenTelemetry GenAI ---------------------------------------------------------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
"""Not sent any more: version 0.1 of the GenAI conventions names workflows like agents."""
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
INDEX_VERSION: Final = "ragpulse.index.version"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
SERVICE_TIER: Final = "gen_ai.response.service_tier"
"""How the provider bills the call: `flex`, `priority`, `batch`, `default`, ..."""
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
"""Seconds from the call to the first text of the stream."""
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""Includes cached tokens."""
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
"""Includes reasoning tokens."""
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_WRITE_1H_TOKENS: Final = "gen_ai.usage.cache_write.1h.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOTAL_TOKENS: Final = "gen_ai.usage.total_tokens"
"""Sent only where it contradicts input and output: then no cost can be computed."""
AUDIO_INPUT_TOKENS: Final = "gen_ai.usage.audio.input_tokens"
AUDIO_OUTPUT_TOKENS: Final = "gen_ai.usage.audio.output_tokens"
TOOL_TOKENS: Final = "ragpulse.usage.tool_tokens"
"""Tokens of tool use that the provider counts apart; like audio tokens they have prices of their own."""
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"
RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
"""One JSON string: [{"id", "score", "content", "metadata"}], in rank order."""
PROMPT_NAME: Final = "gen_ai.prompt.name"
PROMPT_VERSION: Final = "gen_ai.prompt.version"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
"""The event name of the log record that carries one score."""
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

# --- OpenInference ---------------------------------------------------------------------------------------------------
OPENINFERENCE_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
SESSION_ID: Final = "session.id"
USER_ID: Final = "user.id"
METADATA: Final = "metadata"
"""JSON object."""
TAGS: Final = "tag.tags"
"""List of strings."""
RERANKER_QUERY: Final = "reranker.query"
RERANKER_MODEL: Final = "reranker.model_name"
EMBEDDING_MODEL: Final = "embedding.model_name"
COST_TOTAL: Final = "llm.cost.total"
"""US dollars, only when the provider (or the application) said so."""

# --- errors ----------------------------------------------------------------------------------------------------------
ERROR_TYPE: Final = "error.type"
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

# --- resource --------------------------------------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
DEPLOYMENT_ENVIRONMENT: Final = "deployment.environment.name"
SDK_NAME: Final = "telemetry.sdk.name"
SDK_LANGUAGE: Final = "telemetry.sdk.language"
SDK_VERSION: Final = "telemetry.sdk.version"

JSON: Final = "application/json"
PLAIN_TEXT: Final = "text/plain"
OPENINFERENCE_KINDS: Final[dict[str, str]] = {
    "rag": "CHAIN",
    "chain": "CHAIN",
    "retriever": "RETRIEVER",
    "reranker": "RERANKER",
    "embedding": "EMBEDDING",
    "llm": "LLM",
    "tool": "TOOL",
    "agent": "AGENT",
    "guardrail": "GUARDRAIL",
    "evaluator": "EVALUATOR",
}
"""Our kinds -> OpenInference's; anything else is CHAIN."""
OPERATIONS: Final[dict[str, str]] = {
    "rag": "invoke_agent",
    "retriever": "retrieval",
    "reranker": "rerank",
    "embedding": "embeddings",
    "llm": "chat",
    "tool": "execute_tool",
    "agent": "invoke_agent",
}
"""Our kinds -> `gen_ai.operation.name`; other kinds send none."""

# --- documents: where the parts of a retrieved document are, in any library's object or JSON --------------------------
# `ragpulse_evaluators.case` has the same keys for texts, ids and sources.
DOCUMENT_TEXT_KEYS: Final = ("text", "content", "page_content", "document", "chunk", "body", "passage", "snippet")
DOCUMENT_ID_KEYS: Final = (
    "id", "id_", "chunk_id", "node_id", "_id", "uuid", "objectID", "object_id", "x-amz-bedrock-kb-chunk-id", "doc_id",
    "document_id",
)  # fmt: skip
"""The id of the passage before the id of the document that it was cut from. The same keys are read in the metadata."""
DOCUMENT_PARENT_KEYS: Final = frozenset({"doc_id", "document_id"})
DOCUMENT_SOURCE_KEYS: Final = (
    "source", "url", "file_name", "filename", "file_path", "path", "uri", "link", "x-amz-bedrock-kb-source-uri",
)  # fmt: skip
"""Names of the document that a passage was cut from, in the passage or its metadata: several passages share one."""
DOCUMENT_SCORE_KEYS: Final = (
    "score", "relevance_score", "similarity", "similarity_score", "rerank_score", "_score", "relevance", "certainty",
    "@search.reranker_score", "@search.score", "_rankingScore", "_relevance_score", "text_match",
)  # fmt: skip
DOCUMENT_DISTANCE_KEYS: Final = ("distance", "_distance", "vector_distance", "$dist")
"""A smaller distance is better, so it is no score: it is stored in the metadata, as `distance`."""
DOCUMENT_METADATA_KEYS: Final = ("metadata", "meta", "extra_info", "payload", "attributes", "derived_struct_data")
DOCUMENT_FIELD_KEYS: Final = (
    "node", "document", "_source", "fields", "properties", "entity", "record", "chunk", "passage",
)  # fmt: skip
"""Where a hit has the document itself, or its fields: LlamaIndex, Typesense, Elasticsearch, Vespa, Weaviate, Milvus,
Semantic Kernel, Google's Vertex AI."""
DOCUMENT_HIGHLIGHT_KEYS: Final = (
    "highlight", "highlights", "_snippetResult", "_highlightResult", "_formatted", "@search.captions",
    "@search.highlights",
)  # fmt: skip
"""Where a search engine has the passages of a document that match."""
DOCUMENT_LIST_KEYS: Final = (
    "documents", "contexts", "context", "source_documents", "source_nodes", "results", "chunks", "matches", "points",
    "hits", "nodes", "docs", "passages", "retrievalResults", "retrievedReferences", "retrieved_documents",
    "retrieved_docs", "retrieved_chunks", "retrieved_contexts", "retrieved_context", "retrieval_context",
    "retrieval_nodes", "relevant_documents", "scored_chunks", "result_items", "retriever_resources", "search_results",
    "records", "memories", "sources", "references", "reference", "grounding_chunks", "evidence", "snippets", "excerpts",
)  # fmt: skip
"""Where a larger result, or an answer, has its list of documents, perhaps in a mapping of their own."""
DOCUMENT_GROUP_KEYS: Final = ("citations", "output", "groups", "responses")
"""Where a larger result has several results with a list of documents each."""
DOCUMENT_SEARCH_KEYS: Final = ("data", "value", "children", "objects", "items", "texts", "contents", "ids")
"""Where only the result of a search has its list of documents, or the column of their texts or ids."""
DOCUMENT_WRAPPER_KEYS: Final = (
    "root", "response", "result", "structuredContent", "structured_content", "web", "webPages",
)  # fmt: skip
"""What the list may be in: `root.children` of Vespa, `response.docs` of Solr, `structuredContent` of MCP."""
