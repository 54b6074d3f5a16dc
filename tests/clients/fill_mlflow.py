import sys

import mlflow
from mlflow.entities import AssessmentSource, Document, SpanType

mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("helpdesk")


@mlflow.trace(span_type=SpanType.RETRIEVER)
def search(question):
    return [Document(page_content="Refunds take five working days.", metadata={"doc_uri": "faq-1"})]


@mlflow.trace
def answer(question, number):
    mlflow.update_current_trace(metadata={"mlflow.trace.session": f"s{number % 5}", "mlflow.trace.user": "u1"})
    search(question)
    return "Five working days."


ids = []
for number in range(60):
    answer(f"Question {number}?", number)
    ids.append(mlflow.get_last_active_trace_id())
if hasattr(mlflow, "flush_trace_async_logging"):
    mlflow.flush_trace_async_logging()
for trace_id in ids[:12]:
    mlflow.log_feedback(
        trace_id=trace_id, name="thumbs", value=True, rationale="good", source=AssessmentSource("HUMAN", "ann")
    )
    mlflow.log_feedback(trace_id=trace_id, name="correctness", value=0.5, source=AssessmentSource("LLM_JUDGE", "j"))
