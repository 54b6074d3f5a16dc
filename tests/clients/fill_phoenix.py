import json
import sys
import time
import urllib.error
import urllib.request

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

url = sys.argv[1]
provider = TracerProvider(resource=Resource({"openinference.project.name": "helpdesk"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(url + "/v1/traces")))
tracer = provider.get_tracer("app")
ids = []
for number in range(130):
    with tracer.start_as_current_span("answer") as root:
        root.set_attributes(
            {
                "openinference.span.kind": "CHAIN",
                "input.value": f"Question {number}?",
                "output.value": "Five working days.",
                "session.id": f"s{number % 7}",
            }
        )
        with tracer.start_as_current_span("search") as span:
            span.set_attributes(
                {
                    "openinference.span.kind": "RETRIEVER",
                    "input.value": f"Question {number}?",
                    "retrieval.documents.0.document.content": "Refunds take five working days.",
                    "retrieval.documents.0.document.id": "faq-1",
                    "retrieval.documents.0.document.score": 0.9,
                }
            )
        ids.append((format(root.context.trace_id, "032x"), format(root.context.span_id, "016x")))


def post(path, data):
    """Write annotations; Phoenix answers 404 until it has inserted the acknowledged spans."""
    request = urllib.request.Request(
        url + path, json.dumps({"data": data}).encode(), {"Content-Type": "application/json"}
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request):
                return
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > deadline:
                raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error
        time.sleep(0.1)


post(
    "/v1/span_annotations?sync=true",
    [
        {
            "span_id": span_id,
            "name": "correctness",
            "annotator_kind": "LLM",
            "result": {"score": 0.5, "explanation": "half"},
        }
        for _, span_id in ids[:40]
    ],
)
post(
    "/v1/trace_annotations?sync=true",
    [
        {"trace_id": trace_id, "name": "thumbs", "annotator_kind": "HUMAN", "result": {"label": "up", "score": 1}}
        for trace_id, _ in ids[:10]
    ],
)
