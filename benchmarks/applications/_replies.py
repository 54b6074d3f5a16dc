"""A server on loopback that answers each path with one JSON document, for clients of services."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def served(replies: Mapping[str, Any]) -> Iterator[str]:
    """Serve the document of the first path that the request's path contains; yields the URL.

    A list is a stream of server-sent events.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            reply = next((reply for path, reply in replies.items() if path in self.path), None)
            status = 404 if reply is None else 200
            is_stream = isinstance(reply, list)
            events = "".join(f"data: {json.dumps(event)}\n\n" for event in reply) if is_stream else json.dumps(reply)
            body = events.encode()
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
