"""One rule for the results of searches: the SDK reads values, the collector reads them as JSON, row by row the same."""

from __future__ import annotations

import json
from collections import deque, namedtuple
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import pytest
from langchain_core.documents import Document as LangChainDocument
from numpy import array
from pandas import DataFrame
from pyarrow import Table

from ragpulse._reading.contexts import documents_in
from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import BareSpan

PARIS, ROME = "Paris is a city.", "Rome is a city."
ADDRESS = "https://docs.example.com/en/latest/articles/cities/2026/where-is-it#top"
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
RESOURCE = "projects/p/locations/us/collections/default/dataStores/ds/branches/0/documents/2c6bd8a0f9"
TITLE = "Where all of the large cities are and which country each of them belongs to"


Page = namedtuple("Page", "records summary keys")
Hit = namedtuple("Hit", "nr plot link")
Said = namedtuple("Said", "answer sources")


class ObjectId:
    """MongoDB's."""

    def __str__(self) -> str:
        return "65f0c0ff"


def Document(text: str, **more: Any) -> LangChainDocument:
    """A document of LangChain."""
    return LangChainDocument(page_content=text, **more)


Row = tuple[str | None, float | None, str | None, dict[str, Any] | None]
UUID_ = "12345678-1234-5678-1234-567812345678"


def _texts(*texts: str) -> list[Row]:
    return [(None, None, text, None) for text in texts]


def _two(key: str | None = None) -> list[Row]:
    """Two hits with ids and distances or scores."""
    if key is None:
        return [("p", 0.9, PARIS, None), ("r", 0.5, ROME, None)]
    return [("p", None, PARIS, {key: 0.1}), ("r", None, ROME, {key: 0.4})]


SHAPES: dict[str, tuple[Any, list[Row] | None]] = {
    # --- columns with names
    "Chroma": (
        {"ids": [["p", "r"]], "documents": [[PARIS, ROME]], "distances": [[0.1, 0.4]], "embeddings": None, "data": None,
         "metadatas": [[{"page": 1}, None]], "uris": None, "included": ["documents", "distances", "metadatas"]},
        [("p", None, PARIS, {"distance": 0.1, "page": 1}), ("r", None, ROME, {"distance": 0.4})]),
    "Chroma, two queries": (
        {"ids": [["p"], ["r"]], "documents": [[PARIS], [ROME]], "distances": [[0.1], [0.4]]}, _two("distance")),
    "Chroma, get": (
        {"ids": ["p", "r"], "documents": [PARIS, ROME], "metadatas": [{"source": "a.md"}, {"source": "b.md"}]},
        [("p", None, PARIS, {"source": "a.md"}), ("r", None, ROME, {"source": "b.md"})]),
    "Chroma, documents": ([[PARIS, ROME]], _texts(PARIS, ROME)),
    "Chroma, documents of two queries": ([[PARIS, ROME], ["Bonn is a city."]], _texts(PARIS, ROME, "Bonn is a city.")),
    "Chroma, no documents": ({"ids": [["p", "r"]], "documents": None, "distances": [[0.1, 0.4]]},
                             [("p", None, None, {"distance": 0.1}), ("r", None, None, {"distance": 0.4})]),
    "a dict of columns": ({"id": ["p", "r"], "text": [PARIS, ROME], "score": [0.9, 0.5]}, _two()),
    "plural columns": ({"ids": ["p", "r"], "texts": [PARIS, ROME], "scores": [0.9, 0.5]}, _two()),
    "a vector store of LlamaIndex": (
        {"nodes": [{"text": PARIS}, {"text": ROME}], "similarities": [0.9, 0.5], "ids": ["p", "r"]}, _two()),
    "documents and scores": ({"documents": [{"id": "p", "content": PARIS}, {"id": "r", "content": ROME}],
                              "scores": [0.9, 0.5]}, _two()),
    "one column": ({"texts": [PARIS, ROME]}, _texts(PARIS, ROME)),
    # --- rows without names
    "id, text": ([["p", PARIS], ["r", ROME]], [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "text, id": ([[PARIS, "p"], [ROME, "r"]], [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "id, text, score": ([["p", PARIS, 0.9], ["r", ROME, 0.5]], _two()),
    "score, id, text": ([[0.9, "p", PARIS], [0.5, "r", ROME]], _two()),
    "text, score, id": ([[PARIS, 0.9, "p"], [ROME, 0.5, "r"]], _two()),
    "number, text, score": ([[7, PARIS, 0.9], [8, ROME, 0.5]], [("7", 0.9, PARIS, None), ("8", 0.5, ROME, None)]),
    "id, text, page, score": ([["p", PARIS, 3, 0.9], ["r", ROME, 4, 0.5]], _two()),
    "id, text, distance": ([["p", PARIS, 0.1], ["r", ROME, 0.4]], _two("distance")),
    "id, text, metadata, score": (
        [["p", PARIS, {"page": 1}, 0.9], ["r", ROME, {}, 0.5]],
        [("p", 0.9, PARIS, {"page": 1}), ("r", 0.5, ROME, None)]),
    "text, url, language": (
        [[PARIS, "https://example.org/a/long/address/of/paris", "en"], [ROME, "https://example.org/rome", "en"]],
        [(None, None, PARIS, {"source": "https://example.org/a/long/address/of/paris"}),
         (None, None, ROME, {"source": "https://example.org/rome"})]),
    "one text, url, language": ([[PARIS, "https://example.org/paris", "en"]],
                                [(None, None, PARIS, {"source": "https://example.org/paris"})]),
    "file, text, score": ([["a.md", PARIS, 0.9], ["b.md", ROME, 0.5]],
                          [(None, 0.9, PARIS, {"source": "a.md"}), (None, 0.5, ROME, {"source": "b.md"})]),
    "text alone in rows": ([[PARIS], [ROME]], _texts(PARIS, ROME)),
    "text, score": ([[PARIS, 0.9], [ROME, 0.5]], [(None, 0.9, PARIS, None), (None, 0.5, ROME, None)]),
    "document, score": ([[{"id": "p", "text": PARIS}, 0.9], [{"id": "r", "text": ROME}, 0.5]], _two()),
    "document, distance": ([[{"id": "p", "text": PARIS}, 0.1], [{"id": "r", "text": ROME}, 0.4]], _two("distance")),
    "score, document": ([[0.9, {"id": "p", "text": PARIS}], [0.5, {"id": "r", "text": ROME}]], _two()),
    "zip(*hits)": ([["p", "r"], [PARIS, ROME], [0.9, 0.5]], _two()),
    "zip(*hits) of one": ([["p"], [PARIS], [0.9]], [("p", 0.9, PARIS, None)]),
    "zip(*hits) without scores": ([["p", "r"], [PARIS, ROME]], [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "ids and scores": ([["faq-1", 0.9], ["faq-2", 0.5]], [("faq-1", 0.9, None, None), ("faq-2", 0.5, None, None)]),
    # --- results of search engines and vector stores
    "Bedrock, retrieve": (
        {"retrievalResults": [{"content": {"text": PARIS, "type": "TEXT"}, "score": 0.9, "location": {"type": "S3"},
                               "metadata": {"x-amz-bedrock-kb-source-uri": "s3://b/a.md",
                                            "x-amz-bedrock-kb-chunk-id": "p"}}]},
        [("p", 0.9, PARIS,
          {"x-amz-bedrock-kb-source-uri": "s3://b/a.md", "x-amz-bedrock-kb-chunk-id": "p"})]),
    "Bedrock, retrieve and generate": (
        {"output": {"text": "In France."}, "sessionId": "s", "citations": [
            {"generatedResponsePart": {"textResponsePart": {"text": "In"}},
             "retrievedReferences": [{"content": {"text": PARIS}, "metadata": {"id": "p"}}]},
            {"retrievedReferences": [{"content": {"text": ROME}, "metadata": {"id": "r"}}]}]},
        [("p", None, PARIS, {"id": "p"}), ("r", None, ROME, {"id": "r"})]),
    "OpenAI, vector_stores.search": (
        {"object": "vector_store.search_results.page", "search_query": ["q"], "has_more": False, "data": [
            {"file_id": "file-1", "filename": "a.md", "score": 0.9, "attributes": {"lang": "en"},
             "content": [{"type": "text", "text": PARIS}, {"type": "text", "text": ROME}]}]},
        [(None, 0.9, f"{PARIS}\n{ROME}", {"filename": "a.md", "lang": "en"})]),
    "OpenAI, file_search": (
        {"object": "response", "output": [
            {"type": "file_search_call", "id": "fs1", "queries": ["q"],
             "results": [{"file_id": "file-1", "filename": "a.md", "score": 0.9, "text": PARIS, "attributes": {}}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In France."}]}]},
        [(None, 0.9, PARIS, {"filename": "a.md"})]),
    "Pinecone": (
        {"namespace": "", "usage": {"read_units": 1}, "matches": [
            {"id": "p", "score": 0.9, "values": [], "metadata": {"text": PARIS, "source": "a.md"}}]},
        [("p", 0.9, PARIS, {"text": PARIS, "source": "a.md"})]),
    "Pinecone, integrated": (
        {"result": {"hits": [{"_id": "p", "_score": 0.9, "fields": {"chunk": PARIS, "page": 1}}]}},
        [("p", 0.9, PARIS, {"page": 1})]),
    "Typesense": (
        {"found": 1, "page": 1, "hits": [{"document": {"id": "p", "plot": PARIS, "title": "Paris"}, "highlights": [],
                                          "vector_distance": 0.1}]},
        [("p", None, PARIS, {"distance": 0.1, "title": "Paris"})]),
    "Typesense, two searches": (
        {"results": [{"found": 1, "hits": [{"document": {"id": "p", "text": PARIS}, "text_match": 5}]},
                     {"found": 1, "hits": [{"document": {"id": "r", "text": ROME}, "text_match": 4}]}]},
        [("p", 5.0, PARIS, None), ("r", 4.0, ROME, None)]),
    "Vespa": (
        {"root": {"id": "toplevel", "relevance": 1.0, "fields": {"totalCount": 1}, "children": [
            {"id": "index:cities/0/p", "relevance": 0.9, "source": "cities", "fields": {"body": PARIS}}]}},
        [("index:cities/0/p", 0.9, PARIS, {"source": "cities"})]),
    "Azure AI Search": (
        {"@odata.context": "x", "value": [{"@search.score": 0.9, "chunk_id": "p", "chunk": PARIS}]},
        [("p", 0.9, PARIS, None)]),
    "hits of Azure AI Search": (
        [{"@search.score": 0.4, "@search.reranker_score": 2.5, "id": "p", "content": PARIS, "url": "https://e.org/p"}],
        [("p", 2.5, PARIS, {"url": "https://e.org/p"})]),
    "Meilisearch": (
        {"hits": [{"id": 7, "content": PARIS, "_rankingScore": 0.9}], "query": "q", "processingTimeMs": 1, "limit": 3},
        [("7", 0.9, PARIS, None)]),
    "Elasticsearch": (
        {"took": 1, "hits": {"total": {"value": 1}, "max_score": 0.9, "hits": [
            {"_index": "i", "_id": "p", "_score": 0.9, "_source": {"passage": PARIS, "title": "Paris"}}]}},
        [("p", 0.9, PARIS, {"title": "Paris"})]),
    "OpenSearch, several searches": (
        {"responses": [{"hits": {"hits": [{"_id": "p", "_score": 0.9, "_source": {"text": PARIS}}]}}]},
        [("p", 0.9, PARIS, None)]),
    "Solr": ({"response": {"numFound": 1, "docs": [{"id": "p", "score": 0.9, "text": PARIS}]}},
             [("p", 0.9, PARIS, None)]),
    "Weaviate": (
        {"objects": [{"uuid": UUID_, "properties": {"text": PARIS, "page": 1}, "metadata": {"distance": 0.1}}]},
        [(UUID_, None, PARIS, {"distance": 0.1})]),
    "Milvus": (
        [[{"id": 7, "distance": 0.1, "entity": {"text": PARIS, "page": 1}}]],
        [("7", None, PARIS, {"distance": 0.1, "page": 1})]),
    "Qdrant": (
        {"points": [{"id": UUID_, "version": 1, "score": 0.9, "payload": {"text": PARIS, "id": "p"}, "vector": None}]},
        [("p", 0.9, PARIS, {"text": PARIS, "id": "p"})]),
    "Qdrant, groups": (
        {"groups": [{"id": "a.md", "hits": [{"id": 7, "score": 0.9, "payload": {"text": PARIS}}]}]},
        [("7", 0.9, PARIS, {"text": PARIS})]),
    "LanceDB": ([{"id": "p", "text": PARIS, "vector": [0.1, 0.2], "_distance": 0.1}],
                [("p", None, PARIS, {"distance": 0.1})]),
    "Algolia": ({"hits": [{"objectID": "p", "text": PARIS, "_highlightResult": {}}], "nbHits": 1},
                [("p", None, PARIS, None)]),
    "Redis": ([{"id": "doc:p", "payload": None, "text": PARIS, "vector_distance": "0.1"}],
              [("doc:p", None, PARIS, {"distance": 0.1})]),
    "MongoDB": ([{"_id": "p", "text": PARIS, "score": 0.9}], [("p", 0.9, PARIS, None)]),
    "Cohere and Jina, with documents": (
        {"results": [{"index": 0, "relevance_score": 0.9, "document": {"text": PARIS}}]}, [(None, 0.9, PARIS, None)]),
    "Voyage": ({"results": [{"index": 0, "relevance_score": 0.9, "document": PARIS}]}, [(None, 0.9, PARIS, None)]),
    "Tavily": (
        {"query": "q", "answer": None, "images": [], "response_time": 1.0, "results": [
            {"title": "Paris", "url": "https://e.org/p", "content": PARIS, "score": 0.9, "raw_content": None}]},
        [(None, 0.9, PARIS, {"url": "https://e.org/p"})]),
    "MCP, content": (
        {"content": [{"type": "text", "text": PARIS}, {"type": "text", "text": ROME}], "isError": False},
        _texts(PARIS, ROME)),
    "MCP, structured": (
        {"content": [{"type": "text", "text": "..."}], "structuredContent": {"result": [{"id": "p", "text": PARIS}]}},
        [("p", None, PARIS, None)]),
    "id to text": ({"p": PARIS, "r": ROME}, [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "id to document": ({"p": {"text": PARIS, "score": 0.9}}, [("p", 0.9, PARIS, None)]),
    # --- the text of a hit is the field that reads like a passage, never the longest
    "an address longer than the chunk": (
        {"result": {"hits": [{"_id": "p", "_score": 0.9, "fields": {"chunk_text": PARIS, "source_url": ADDRESS}}]}},
        [("p", 0.9, PARIS, {"source_url": ADDRESS})]),
    "a hash, a resource name and a title": (
        [{"properties": {"plot": PARIS, "checksum": HASH, "x": HASH, "doc": RESOURCE, "documentTitle": TITLE}}],
        [(None, None, PARIS, {"checksum": HASH, "x": HASH, "doc": RESOURCE, "documentTitle": TITLE})]),
    "a field of a row": ([{"id": "p", "plot": PARIS}], [("p", None, None, None)]),
    "a field that speaks of a text": (
        [{"id": "p", "remark": TITLE, "abstract_en": PARIS}], [("p", None, PARIS, None)]),
    "an identifier under a usual name": (
        [{"document": "cities-2026.pdf", "passage": PARIS}], [(None, None, PARIS, None)]),
    "an empty text before another": ([{"id": "p", "text": "", "body": PARIS}], [("p", None, PARIS, None)]),
    "Vertex AI Search": (
        {"results": [{"id": "p", "document": {"derivedStructData": {"extractive_answers": [{"content": PARIS}]}}}]},
        [("p", None, PARIS, {"extractive_answers": [{"content": PARIS}]})]),
    "no passage at all": ([{"id": "p", "score": 0.9, "link": ADDRESS}], [("p", 0.9, None, {"link": ADDRESS})]),
    "a script without spaces": ([{"id": "p", "fields": {"正文": "退款需要5个工作日。", "标签": "x"}}],
                                [("p", None, "退款需要5个工作日。", {"标签": "x"})]),
    "columns of texts and addresses": ({"texts": [PARIS], "urls": [ADDRESS]}, [(None, None, PARIS, {"url": ADDRESS})]),
    "addresses alone": (
        [ADDRESS, "a.md"], [(None, None, None, {"source": ADDRESS}), (None, None, None, {"source": "a.md"})]),
    "Elasticsearch, highlight": (
        {"hits": {"hits": [{"_id": "p", "_score": 0.9, "_source": {"title": TITLE, "url": ADDRESS},
                            "highlight": {"title": ["<em>Paris</em> and Rome"], "plot": [PARIS, ROME]}}]}},
        [("p", 0.9, f"{PARIS}\n{ROME}", {"title": TITLE, "url": ADDRESS})]),
    "Elasticsearch, inner_hits": (
        {"hits": {"hits": [{"_id": "p", "_score": 0.9, "_source": {"content": f"{TITLE} {PARIS} {ROME}"},
                            "inner_hits": {"content": {"hits": {"total": {"value": 1}, "hits": [
                                {"_id": "p", "_score": 0.8, "_source": {"text": PARIS}}]}}}}]}},
        [("p", 0.9, PARIS, {"content": f"{TITLE} {PARIS} {ROME}"})]),
    "Algolia, snippet": (
        {"hits": [{"objectID": "p", "title": TITLE,
                   "_snippetResult": {"title": {"value": TITLE}, "plot": {"value": PARIS, "matchLevel": "full"}}}]},
        [("p", None, PARIS, None)]),
    "Azure AI Search, captions": (
        {"value": [{"@search.score": 0.9, "id": "p", "title": TITLE, "@search.captions": [{"text": PARIS}]}]},
        [("p", 0.9, PARIS, None)]),
    "mem0": ({"results": [{"id": UUID_, "memory": PARIS, "hash": HASH, "metadata": None, "score": 0.9, "user_id": "u",
                           "created_at": "2026-11-28T10:00:00Z"}], "relations": []}, [(UUID_, 0.9, PARIS, None)]),
    "Kendra, retrieve": (
        {"QueryId": "q", "ResultItems": [{"Id": "p", "DocumentId": "s3://b/a.md", "DocumentTitle": TITLE,
                                          "Content": PARIS, "ScoreAttributes": {"ScoreConfidence": "HIGH"}}]},
        [("p", None, PARIS, None)]),
    "Kendra, query": (
        {"ResultItems": [{"Id": "p", "Type": "DOCUMENT", "DocumentTitle": {"Text": TITLE, "Highlights": []},
                          "DocumentExcerpt": {"Text": PARIS, "Highlights": []}}], "FacetResults": []},
        [("p", None, PARIS, None)]),
    "Vertex AI RAG": ({"contexts": {"contexts": [{"sourceUri": "gs://b/a.md", "text": PARIS, "score": 0.9}]}},
                      [(None, 0.9, PARIS, None)]),
    "ragie": ({"scored_chunks": [{"text": PARIS, "score": 0.9, "id": "p", "document_id": "d", "links": {}}]},
              [("p", 0.9, PARIS, None)]),
    "LlamaCloud": ({"pipeline_id": UUID_, "retrieval_nodes": [{"node": {"id_": "p", "text": PARIS}, "score": 0.9}]},
                   [("p", 0.9, PARIS, None)]),
    "Semantic Kernel, text": (
        [{"name": "p", "value": PARIS, "link": ADDRESS}], [(None, None, PARIS, {"link": ADDRESS})]),
    "Semantic Kernel, vector": (
        [{"record": {"id": "p", "description": PARIS}, "score": 0.9}], [("p", 0.9, PARIS, None)]),
    "LangChain in JavaScript": ([{"pageContent": PARIS, "metadata": {"id": "p"}}], [("p", None, PARIS, {"id": "p"})]),
    "Cypher": ([{"c.text": PARIS, "score": 0.9}], [(None, 0.9, PARIS, None)]),
    "Brave": ({"web": {"results": [{"title": TITLE, "url": ADDRESS, "description": PARIS}]}},
              [(None, None, PARIS, {"url": ADDRESS})]),
    # --- what an answer was made of
    "sources": ({"answer": "In France.", "sources": [{"id": "p", "text": PARIS}]}, [("p", None, PARIS, None)]),
    "references": ({"answer": "In France.", "references": [{"id": "p", "text": PARIS}]}, [("p", None, PARIS, None)]),
    "citations": ({"answer": "In France.", "citations": [{"content": PARIS, "title": TITLE, "url": ADDRESS}]},
                  [(None, None, PARIS, {"url": ADDRESS})]),
    "citations with their sources": (
        {"text": "In France.", "citations": [{"text": "In", "sources": [{"id": "p", "document": {"snippet": PARIS}}]}]},
        [("p", None, PARIS, None)]),
    "a reference with chunks": ({"answer": "In France.", "reference": {"chunks": [{"id": "p", "content": PARIS}]}},
                                [("p", None, PARIS, None)]),
    "addresses of an answer": ({"answer": "In France.", "citations": [ADDRESS]},
                               [(None, None, None, {"source": ADDRESS})]),
    # --- ids
    "an id in the metadata": ([{"text": PARIS, "metadata": {"id": "p"}}], [("p", None, PARIS, {"id": "p"})]),
    "the passage before the document": (
        [{"text": PARIS, "metadata": {"doc_id": "d", "chunk_id": "p"}}],
        [("p", None, PARIS, {"doc_id": "d", "chunk_id": "p"})]),
    "an id of its own": ([{"id": "p", "text": PARIS, "metadata": {"id": "x"}}], [("p", None, PARIS, {"id": "x"})]),
    "an id that was generated": (
        [{"id": UUID_, "text": PARIS, "metadata": {"_id": UUID_, "chunk_id": "p"}}],
        [("p", None, PARIS, {"_id": UUID_, "chunk_id": "p"})]),
    "only an id that was generated": ([{"id": UUID_, "text": PARIS}], [(UUID_, None, PARIS, None)]),
    "a source is no id": ([{"text": PARIS, "metadata": {"source": "a.md", "url": "https://e.org"}}],
                          [(None, None, PARIS, {"source": "a.md", "url": "https://e.org"})]),
    "the passage's own text": ([{"content": PARIS, "metadata": {"text": ROME}}], [(None, None, PARIS, {"text": ROME})]),
    # --- no documents
    "an error": ({"error": "timeout", "results": None}, None),
    "numbers": ({"total": 3, "took": 0.1}, None),
    "an answer": ({"answer": PARIS, "question": "Where?"}, None),
    "a failed search": ({"status": "failed", "message": "no such index"}, None),
}  # fmt: skip


VALUES: dict[str, tuple[Any, list[Row] | None]] = {
    "(ids, texts)": ((["p", "r"], [PARIS, ROME]), [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "(texts, ids)": (((PARIS, ROME), ("p", "r")), [("p", None, PARIS, None), ("r", None, ROME, None)]),
    "(ids, texts, scores)": ((["p", "r"], [PARIS, ROME], [0.9, 0.5]), _two()),
    "(texts, metadatas)": (
        ([PARIS, ROME], [{"page": 1}, {"page": 2}]),
        [(None, None, PARIS, {"page": 1}), (None, None, ROME, {"page": 2})]),
    "(docs, array)": (([Document(PARIS, id="p"), Document(ROME, id="r")], array([0.9, 0.5])), _two()),
    "(docs, array of one query)": (([Document(PARIS, id="p"), Document(ROME, id="r")], array([0.1, 0.4])),
                                   _two("distance")),
    "(distances, numbers) of FAISS": (
        (array([[0.1, 0.4]]), array([[7, 3]])),
        [("7", None, None, {"distance": 0.1}), ("3", None, None, {"distance": 0.4})]),
    "(queries, documents)": ((["one", "two"], [Document(PARIS, id="p")] * 3), [("p", None, PARIS, None)] * 3),
    "(query, documents)": (("q", [Document(PARIS)]), _texts(PARIS)),
    "(documents, total)": (([Document(PARIS)], 17), _texts(PARIS)),
    "(document, score)": ((Document(PARIS), 0.9), [(None, 0.9, PARIS, None)]),
    "one row": (("p", PARIS, 0.9), [("p", 0.9, PARIS, None)]),
    "zip(*hits)": (tuple(zip(*[("p", PARIS, 0.9), ("r", ROME, 0.5)], strict=True)), _two()),
    "rows of a database": ([(UUID(UUID_), PARIS, 0.9)], [(UUID_, 0.9, PARIS, None)]),
    "an array of texts": (array([PARIS, ROME]), _texts(PARIS, ROME)),
    "a deque": (deque([PARIS, ROME]), _texts(PARIS, ROME)),
    "values of a dict": ({"p": {"text": PARIS}}.values(), _texts(PARIS)),
    "a column of pandas": (DataFrame({"text": [PARIS, ROME]})["text"], _texts(PARIS, ROME)),
    "a column of Arrow": (Table.from_pydict({"text": [PARIS, ROME]})["text"], _texts(PARIS, ROME)),
    "names of its own": (DataFrame({"nr": ["p", "r"], "words": [PARIS, ROME], "rank": [0.9, 0.5]}), _two()),
    "an id with a text of its own": ([SimpleNamespace(_id=ObjectId(), text=PARIS)], [("65f0c0ff", None, PARIS, None)]),
    "a mock": (MagicMock(), None),
    "a named tuple": (Page([{"id": "p", "text": PARIS}], None, ["id", "text"]), [("p", None, PARIS, None)]),
    "named tuples": ([Hit("p", PARIS, ADDRESS)], [("p", None, PARIS, {"link": ADDRESS})]),
    "objects in an object": (
        SimpleNamespace(page=1, found=[SimpleNamespace(node=SimpleNamespace(id_="p", text=PARIS), score=0.9)]),
        [("p", 0.9, PARIS, None)]),
    "an answer of objects": (
        SimpleNamespace(answer="In France.", references=[SimpleNamespace(id="p", quote=PARIS, title=TITLE)]),
        [("p", None, PARIS, None)]),
    "an answer as a named tuple": (
        Said("In France.", [SimpleNamespace(id="p", text=PARIS)]), [("p", None, PARIS, None)]),
}  # fmt: skip


@pytest.mark.parametrize("shape", VALUES)
def test_the_sdk_reads_values(shape: str) -> None:
    """Tuples, arrays and objects, which JSON does not have."""
    result, expected = VALUES[shape]
    assert _rows(documents_in(result)) == expected


@pytest.mark.parametrize(
    "result",
    [
        [{"id": 7, "plot": PARIS}],
        [{"id": 7, "text": ROME, "metadata": {"plot": PARIS}}],
        {"hits": [{"_id": 7, "_source": {"plot": PARIS, "review": "A review that is longer than the plot."}}]},
        {"films": [{"id": 7, "plot": PARIS}]},
        DataFrame({"id": [7], "plot": [PARIS], "title": ["A title that is longer than the plot."]}),
        [SimpleNamespace(id=7, plot=PARIS, title="x")],
    ],
)  # fmt: skip
def test_a_field_of_ones_own_has_the_text(result: Any) -> None:
    """Declared once: in the hit, its fields or its metadata; whatever else looks like a text."""
    found = documents_in(result, "plot")
    assert found is not None
    assert [(each.id, each.text) for each in found] == [("7", PARIS)]


def _rows(documents: Any) -> list[Row] | None:
    if documents is None:
        return None
    return [(each.id, each.score, each.text, json.loads(each.metadata) if each.metadata else None)
            for each in documents]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sdk_reads(shape: str) -> None:
    """Values as a function returns them."""
    result, expected = SHAPES[shape]
    assert _rows(documents_in(result)) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_the_collector_reads_the_same(shape: str) -> None:
    """JSON, as other instrumentations write it on a retriever's span."""
    result, expected = SHAPES[shape]
    span = BareSpan()
    span.kind = "retriever"
    found = documents_of_retrieval(json.dumps(result), span)
    assert _rows(None if found is None else found.value) == expected
