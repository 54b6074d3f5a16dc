"""Decoding against its floor: the same bodies parsed and walked into dicts, in the same run.

Prints CPU microseconds a span and the ratio to the floor; both encodings.
"""

from __future__ import annotations

import base64
import gc
import gzip
import sys
import time
from collections.abc import Callable
from statistics import median

import orjson
from _payload import body
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragpulse_collector.conventions import decode
from ragpulse_collector.otlp import protobuf
from ragpulse_collector.records import RawBody

SPANS = 512


def main() -> None:
    """Time the steps in turn."""
    rounds = 3 if "--short" in sys.argv else 15
    bodies = [body(SPANS, seed=seed) for seed in range(8)]
    zipped = [gzip.compress(content) for content in bodies]
    raws = [RawBody(signal="traces", content_type="application/x-protobuf", body=content) for content in bodies]
    jsons = [RawBody(signal="traces", content_type="application/json", body=_json(content)) for content in bodies]
    steps: dict[str, Callable[[int], object]] = {
        "gunzip": lambda i: gzip.decompress(zipped[i]),
        "protobuf parse": lambda i: ExportTraceServiceRequest.FromString(bodies[i]),
        "parse + walk (floor)": lambda i: protobuf.spans(bodies[i]),
        "decode: parse, walk, map": lambda i: decode(raws[i]),
        "decode of OTLP/JSON": lambda i: decode(jsons[i]),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for index in range(len(bodies)):
            for name, step in steps.items():
                times[name].append(_cpu_s(step, index))
    print(f"{SPANS} spans a body, {len(bodies[0]) / SPANS:.0f} B/span plain, {len(zipped[0]) / SPANS:.0f} B gzip")
    floor = median(times["parse + walk (floor)"])
    for name, seconds in times.items():
        print(f"{name:26} {median(seconds) / SPANS * 1e6:6.1f} us/span  {median(seconds) / floor:5.2f} x floor")


def _cpu_s(step: Callable[[int], object], index: int) -> float:
    gc.collect()
    start = time.process_time()
    step(index)
    return time.process_time() - start


def _json(protobuf: bytes) -> bytes:
    """Return a body as OTLP/JSON; protobuf's own writer does not write ids in hex."""
    message = MessageToDict(ExportTraceServiceRequest.FromString(protobuf), use_integers_for_enums=True)
    for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            span[key] = base64.b64decode(span.get(key, "")).hex()
    return orjson.dumps(message)


if __name__ == "__main__":
    main()
