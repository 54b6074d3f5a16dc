"""OTLP 1.11: request bodies to batches of spans and log records, and the answers of the protocol. Pure.

body ─ inflate (capped) ─▶ parse_spans | parse_logs | count_metrics ─▶ wire shapes ─▶ conventions
answer ◀─ success | partial_success | failure, in the encoding of the request
"""
