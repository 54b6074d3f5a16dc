"""The JSON function: one table of operations, served over HTTP and handed to the pages.

Operation(method, path, run) ─┬─▶ http.routes        /api/v1/...
                              ├─▶ Operations.call    the pages, the demo
                              └─▶ openapi.document   /openapi.json
"""
