"""An existing LlamaIndex application: two lines record the query, its nodes with scores, and the model.

Needs `ragpulse[instrument]` and `llama-index-core`. `ragpulse run` does it without the two lines.
"""

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM

import ragpulse


def main() -> None:
    ragpulse.configure(service_name="existing-llamaindex")
    ragpulse.instrument("llama_index")
    documents = [Document(text="Paris is the capital of France.", id_="atlas-1")]
    index = VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(embed_dim=8))
    print(index.as_query_engine(llm=MockLLM(max_tokens=8)).query("What is the capital of France?"))
    ragpulse.flush()


if __name__ == "__main__":
    main()
