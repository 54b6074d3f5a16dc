"""Clients of search services against their replies on loopback: hits, columns, citations, distances."""

import asyncio
from typing import Any

import boto3
from _replies import served
from azure.core.credentials import AzureKeyCredential
from azure.search.documents import SearchClient
from bson import ObjectId
from cohere import ClientV2
from mcp import Client
from mcp.server.mcpserver import MCPServer
from meilisearch import Client as Meilisearch
from openai import OpenAI
from opensearchpy import OpenSearch
from pinecone import Pinecone
from redis.commands.search.result import Result
from tavily import TavilyClient
from typesense import Client as Typesense

import ragpulse

GROUP = "services"
REQUIREMENTS = [
    "azure-search-documents", "boto3", "cohere", "mcp>=2", "meilisearch", "openai", "opensearch-py", "pinecone",
    "pymongo", "redis", "tavily-python", "typesense",
]  # fmt: skip
EXPECTED = {
    "with_pinecone": {"contexts": ["Paris is a city."], "ids": ["p"], "scores": [0.5], "sources": ["a.md"]},
    "with_typesense": {"contexts": ["Paris is a city."], "ids": ["p"], "scores": [None]},
    "with_meilisearch": {"contexts": ["Paris is a city."], "ids": ["7"], "scores": [0.5]},
    "with_opensearch": {"contexts": ["Paris is a city."], "ids": ["p"], "scores": [0.5]},
    "with_azure": {
        "contexts": ["Paris is a city."],
        "ids": ["p"],
        "scores": [0.5],
        "sources": ["https://example.org/p"],
    },
    "with_bedrock": {"contexts": ["Paris is a city."], "ids": ["p"], "scores": [0.5], "sources": ["s3://b/a.md"]},
    "bedrock_answer": {"response": "In France.", "contexts": ["Paris is a city."], "sources": ["s3://b/a.md"]},
    "vector_store": {"contexts": ["Paris is a city."], "scores": [0.5], "sources": ["a.md"]},
    "file_search": {"contexts": ["Paris is a city."], "scores": [0.5], "sources": ["a.md"]},
    "with_tavily": {"contexts": ["Paris is a city."], "scores": [0.5], "sources": ["https://example.org/p"]},
    "with_redis": {"contexts": ["Paris is a city."], "ids": ["doc:p"], "scores": [None]},
    "with_mongo": {"contexts": ["Paris is a city."], "ids": ["65f0c0ffee65f0c0ffee0001"], "scores": [0.5]},
    "with_mcp": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"]},
    "with_cohere": {"contexts": ["Rome is a city.", "Paris is a city."], "scores": [0.9, 0.5]},
    "own_field": {"contexts": ["Paris is a city."], "ids": ["7"]},
}

PARIS = "Paris is a city."
REFERENCE = {
    "content": {"text": PARIS, "type": "TEXT"},
    "location": {"type": "S3", "s3Location": {"uri": "s3://b/a.md"}},
    "metadata": {"x-amz-bedrock-kb-source-uri": "s3://b/a.md", "x-amz-bedrock-kb-chunk-id": "p"},
}
FILE = {"file_id": "file-1", "filename": "a.md", "score": 0.5, "attributes": {}}
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5-mini", "status": "completed", "tools": [],
    "parallel_tool_calls": True, "tool_choice": "auto", "output": [
        {"type": "file_search_call", "id": "fs1", "queries": ["q"], "status": "completed",
         "results": [{**FILE, "text": PARIS}]},
        {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "In France.", "annotations": []}]},
    ],
}  # fmt: skip
REPLIES: dict[str, Any] = {
    "/query": {"matches": [{"id": "p", "score": 0.5, "values": [], "metadata": {"text": PARIS, "source": "a.md"}}]},
    "/collections/c/": {"found": 1, "hits": [{"document": {"id": "p", "text": PARIS}, "vector_distance": 0.25}]},
    "/indexes/c/search": {"hits": [{"id": 7, "content": PARIS, "_rankingScore": 0.5}], "query": "q"},
    "/indexes/films/search": {"hits": [{"id": 7, "title": "A very long title of a city", "plot": PARIS}], "query": "q"},
    "/c/_search": {"hits": {"total": {"value": 1}, "hits": [{"_id": "p", "_score": 0.5, "_source": {"text": PARIS}}]}},
    "/docs/search": {"value": [{"@search.score": 0.5, "chunk_id": "p", "chunk": PARIS, "url": "https://example.org/p"}]},
    "/retrieveAndGenerate": {"sessionId": "s", "output": {"text": "In France."},
                             "citations": [{"retrievedReferences": [REFERENCE]}]},
    "/retrieve": {"retrievalResults": [{**REFERENCE, "score": 0.5}]},
    "/vector_stores/": {"object": "vector_store.search_results.page", "search_query": ["q"], "has_more": False,
                        "data": [{**FILE, "content": [{"type": "text", "text": PARIS}]}]},
    "/responses": RESPONSE,
    "/rerank": {"id": "r", "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.5}]},
    "/search": {"query": "q", "images": [], "response_time": 1,
                "results": [{"title": "Paris", "url": "https://example.org/p", "content": PARIS, "score": 0.5}]},
}  # fmt: skip
TOOLS = MCPServer("cities")


@TOOLS.tool()
def cities(query: str) -> list[dict[str, str]]:
    """Search cities."""
    return [{"id": "p", "text": PARIS}, {"id": "r", "text": "Rome is a city."}]


class Searches:
    """One search with each client."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        aws = {"endpoint_url": url, "region_name": "eu-west-1", "aws_access_key_id": "k", "aws_secret_access_key": "k"}
        self.bedrock = boto3.client("bedrock-agent-runtime", **aws)
        self.openai = OpenAI(base_url=url, api_key="none")

    @ragpulse.retriever(name="with_pinecone")
    def with_pinecone(self, query: str) -> Any:
        return Pinecone(api_key="none").Index(host=self.url).query(vector=[1.0], top_k=1, include_metadata=True)

    @ragpulse.retriever(name="with_typesense")
    def with_typesense(self, query: str) -> Any:
        node = {"host": "127.0.0.1", "port": self.port, "protocol": "http"}
        return Typesense({"nodes": [node], "api_key": "none"}).collections["c"].documents.search({"q": query})

    @ragpulse.retriever(name="with_meilisearch")
    def with_meilisearch(self, query: str) -> Any:
        return Meilisearch(self.url).index("c").search(query, {"showRankingScore": True})

    @ragpulse.retriever(name="own_field", contexts="plot")
    def own_field(self, query: str) -> Any:
        return Meilisearch(self.url).index("films").search(query)

    @ragpulse.retriever(name="with_opensearch")
    def with_opensearch(self, query: str) -> Any:
        return OpenSearch([self.url]).search(index="c", body={})

    @ragpulse.retriever(name="with_azure")
    def with_azure(self, query: str) -> Any:
        return list(SearchClient(self.url, "c", AzureKeyCredential("none")).search(query))

    @ragpulse.retriever(name="with_bedrock")
    def with_bedrock(self, query: str) -> Any:
        return self.bedrock.retrieve(knowledgeBaseId="KB12345678", retrievalQuery={"text": query})

    @ragpulse.rag(name="bedrock_answer")
    def bedrock_answer(self, query: str) -> Any:
        return self.bedrock.retrieve_and_generate(input={"text": query})

    @ragpulse.retriever(name="vector_store")
    def vector_store(self, query: str) -> Any:
        return self.openai.vector_stores.search("vs1", query=query)

    @ragpulse.retriever(name="file_search")
    def file_search(self, query: str) -> Any:
        return self.openai.responses.create(model="gpt-5-mini", input=query, include=["file_search_call.results"])

    @ragpulse.retriever(name="with_tavily")
    def with_tavily(self, query: str) -> Any:
        return TavilyClient("none", api_base_url=self.url).search(query)

    @ragpulse.retriever(name="with_redis")
    def with_redis(self, query: str) -> Any:
        return Result([1, "doc:p", ["text", PARIS, "vector_distance", "0.25"]], hascontent=True)

    @ragpulse.retriever(name="with_mongo")
    def with_mongo(self, query: str) -> Any:
        return [{"_id": ObjectId("65f0c0ffee65f0c0ffee0001"), "text": PARIS, "score": 0.5}]

    @ragpulse.reranker(name="with_cohere")
    def with_cohere(self, query: str, documents: list[str]) -> Any:
        return ClientV2("none", base_url=self.url).rerank(model="rerank", query=query, documents=documents)


@ragpulse.retriever
async def with_mcp(query: str) -> Any:
    async with Client(TOOLS) as client:
        return await client.call_tool("cities", {"query": query})


if __name__ == "__main__":
    ragpulse.configure()
    with served(REPLIES) as url:
        searches = Searches(url)
        for search in (
            searches.with_pinecone, searches.with_typesense, searches.with_meilisearch, searches.own_field,
            searches.with_opensearch, searches.with_azure, searches.with_bedrock, searches.bedrock_answer,
            searches.vector_store, searches.file_search, searches.with_tavily, searches.with_redis, searches.with_mongo,
        ):  # fmt: skip
            search("Which city?")
        searches.with_cohere("Which city?", [PARIS, "Rome is a city."])
    asyncio.run(with_mcp("Which city?"))
    ragpulse.flush()
