"""The examples that run here as applications: by name the group of their environment and what has to arrive."""

from pathlib import Path
from typing import Any

FOUND = {"search": {"ids": ["refunds", "delivery"], "contexts": ..., "query": ...}}
ANSWERED = {"answer": {"kind": "rag", "response": "A refund is possible within thirty days of the purchase."}}
EXAMPLES: dict[str, dict[str, Any]] = {
    "chroma_app": {"group": "stores", "requirements": [], "expected": FOUND | ANSWERED},
    "faiss_app": {"group": "stores", "requirements": [], "expected": FOUND | ANSWERED},
    "pgvector_app": {
        "group": "pgvector",
        "requirements": ["pgserver", "psycopg[binary]"],
        "expected": FOUND | ANSWERED,
        "command": ["{python}", str(Path(__file__).with_name("_postgres.py")), "{file}"],
    },
    "qdrant_app": {"group": "retrievers", "requirements": [], "expected": FOUND | ANSWERED},
    "langgraph_agent": {
        "group": "langchain",
        "requirements": [],
        "expected": FOUND | {"ask": {"response": ...}, "answer": {"kind": "rag", "response": ...}},
    },
    "open_webui_pipe": {
        "group": "stores",
        "requirements": [],
        "expected": FOUND | ANSWERED | {"trace": {"user_id": "u1", "session_id": "c1"}},
    },
}
