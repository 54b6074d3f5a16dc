"""Search, tables, rerankers: genuine results of Cohere, Elasticsearch, Milvus, pandas, polars, Qdrant, Weaviate."""

from typing import Any
from uuid import UUID

import pandas
import polars
from cohere import V2RerankResponse, V2RerankResponseResultsItem
from elastic_transport import ApiResponseMeta, HttpHeaders, NodeConfig, ObjectApiResponse
from pymilvus import MilvusClient
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams
from weaviate.collections.classes.internal import MetadataReturn, Object, QueryReturn

import ragpulse

GROUP = "retrievers"
REQUIREMENTS = [
    "cohere",
    "elasticsearch",
    "pandas",
    "polars",
    "pymilvus[milvus-lite]",
    "qdrant-client",
    "weaviate-client",
]
EXPECTED = {
    "with_pandas": {"contexts": ["Paris is a city.", "Rome is a city."]},
    "with_polars": {"contexts": ["Paris is a city.", "Rome is a city."]},
    "with_elasticsearch": {"contexts": ["Paris is a city."]},
    "with_qdrant": {"contexts": ["Paris is a city."]},
    "with_milvus": {"contexts": ["Paris is a city.", "Rome is a city."]},
    "with_weaviate": {"contexts": ["Paris is a city."]},
    "with_cohere": {"contexts": ["Rome is a city.", "Paris is a city."]},
    "not_understood": {"contexts": [], "attributes": {"ragpulse.result.unread": ...}},
}

TEXTS = ["Paris is a city.", "Rome is a city."]
ROWS = {"id": ["p", "r"], "text": TEXTS, "score": [0.9, 0.5]}


@ragpulse.retriever
def with_pandas(query: str) -> Any:
    return pandas.DataFrame(ROWS)


@ragpulse.retriever
def with_polars(query: str) -> Any:
    return polars.DataFrame(ROWS)


@ragpulse.retriever
def with_elasticsearch(query: str) -> Any:
    hit = {"_index": "cities", "_id": "p", "_score": 1.5, "_source": {"passage": TEXTS[0]}}
    meta = ApiResponseMeta(200, "1.1", HttpHeaders(), 0.1, NodeConfig("http", "127.0.0.1", 9200))
    return ObjectApiResponse({"took": 1, "hits": {"total": {"value": 1}, "hits": [hit]}}, meta)


@ragpulse.retriever
def with_qdrant(query: str) -> Any:
    client = QdrantClient(":memory:")
    client.create_collection("cities", VectorParams(size=2, distance=Distance.COSINE))
    client.upsert("cities", [PointStruct(id=1, vector=[1.0, 0.0], payload={"text": TEXTS[0]})])
    return client.query_points("cities", query=[1.0, 0.0])


@ragpulse.retriever
def with_milvus(query: str) -> Any:
    client = MilvusClient("./cities.db")
    client.create_collection("cities", dimension=2)
    rows = [{"id": index, "vector": [1.0, float(index)], "passage": text} for index, text in enumerate(TEXTS)]
    client.insert("cities", rows)
    return client.search("cities", data=[[1.0, 0.0]], limit=2, output_fields=["passage"])


@ragpulse.retriever
def with_weaviate(query: str) -> Any:
    properties: Any = {"text": TEXTS[0], "country": "France"}
    metadata = MetadataReturn(score=0.75)
    hit = Object(UUID(int=7), metadata=metadata, properties=properties, references=None, vector={}, collection="Cities")
    return QueryReturn(objects=[hit])


@ragpulse.reranker
def with_cohere(query: str, documents: list[str]) -> Any:
    results = [V2RerankResponseResultsItem(index=index, relevance_score=0.9 - index) for index in (1, 0)]
    return V2RerankResponse(results=results)


@ragpulse.retriever
def not_understood(query: str) -> Any:
    return iter


if __name__ == "__main__":
    ragpulse.configure()
    for search in (
        with_pandas,
        with_polars,
        with_elasticsearch,
        with_qdrant,
        with_milvus,
        with_weaviate,
        not_understood,
    ):
        search("Which city?")
    with_cohere("Which city?", TEXTS)
    ragpulse.flush()
