"""The JSON API: one table of operations, served over HTTP and handed to the pages.

Operation(name, run, summary, params, answer) ─┬─▶ operations.routes   /api/v1/...
                                               ├─▶ Operations.call     the pages, the demo
                                               └─▶ operations.document /openapi.json

`models` (reading) and `drafts` (changing) hold the parameters; `answers`, `reports` (quality) and `states` (running
components) the answers; `http` JSON and the form of errors.
"""
