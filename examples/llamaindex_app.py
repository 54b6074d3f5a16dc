"""LlamaIndex: nodes with scores and responses with sources are understood. Needs `llama-index-core`."""

from llama_index.core.base.response.schema import Response
from llama_index.core.schema import NodeWithScore, TextNode

import ragpulse

NODES = [TextNode(text="Paris is the capital of France.", id_="atlas-1", metadata={"source": "atlas"})]


@ragpulse.retriever
def retrieve(query: str) -> list[NodeWithScore]:
    return [NodeWithScore(node=node, score=0.9) for node in NODES]


@ragpulse.rag
def answer(question: str) -> Response:
    nodes = retrieve(question)
    return Response(response=nodes[0].get_content(), source_nodes=nodes)


def main() -> None:
    ragpulse.configure(service_name="llamaindex-example")
    print(answer("What is the capital of France?"))
    ragpulse.flush()


if __name__ == "__main__":
    main()
