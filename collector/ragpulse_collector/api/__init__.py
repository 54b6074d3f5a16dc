"""The JSON function: one table of operations, served over HTTP and handed to the pages.

Operation(method, path, params, run, answer) ─┬─▶ http.routes        /api/v1/...
                                              ├─▶ Operations.call    the pages, the demo
                                              └─▶ openapi.document   /openapi.json

`models` holds the parameters of each operation, `answers` the answers, `problems` the form of errors.
"""
