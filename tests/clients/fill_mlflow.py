import sys

import mlflow
from mlflow.entities import AssessmentSource, Document, SpanType

mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("helpdesk")


@mlflow.trace(span_type=SpanType.RETRIEVER)
def search(question):
    return [Document(page_content="Refunds take five working days.", metadata={"doc_uri": "faq-1"})]


@mlflow.trace
def answer(question, n):
    mlflow.update_current_trace(metadata={"mlflow.trace.session": f"s{n % 5}", "mlflow.trace.user": "u1"})
    search(question)
    return "Five working days."


ids = []
for n in range(60):
    answer(f"Question {n}?", n)
    ids.append(mlflow.get_last_active_trace_id())
mlflow.flush_trace_async_logging() if hasattr(mlflow, "flush_trace_async_logging") else None
for t in ids[:12]:
    mlflow.log_feedback(
        trace_id=t, name="thumbs", value=True, rationale="good", source=AssessmentSource("HUMAN", "ann")
    )
    mlflow.log_feedback(trace_id=t, name="correctness", value=0.5, source=AssessmentSource("LLM_JUDGE", "j"))
