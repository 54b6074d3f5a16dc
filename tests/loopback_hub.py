"""A hub of models on loopback: model information, files with ranges, and failures on purpose."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SHA = "5f0c" * 10


class LoopbackHub:
    """Serves folders as models `owner/name`; `HF_ENDPOINT` is its `url`.

    `cut` is a number of bytes after which a download of a file breaks off, once. `status` refuses every request.
    """

    def __init__(self, models: dict[str, Path], *, licence: str | None = "mit") -> None:
        self.models, self.licence = models, licence
        self.cut: int | None = None
        self.status: int | None = None
        self.hostile: list[dict[str, Any]] = []
        """Rows that it lists beside the files."""
        self.dies = False
        """Whether every request is refused after a cut."""
        self.gone_after: str | None = None
        """The file after whose download every request is refused."""
        self.asked: list[tuple[str, str, str | None]] = []
        """Method, path and range of each request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.hub = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        """The address for `HF_ENDPOINT`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fetched(self, name: str) -> list[str | None]:
        """The ranges of the downloads of a file."""
        return [span for method, path, span in self.asked if method == "GET" and path.endswith(f"/{name}")]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _sibling(folder: Path, file: Path) -> dict[str, Any]:
    """A file as the hub lists it; weights are in large file storage, which states their digest."""
    size = file.stat().st_size
    row: dict[str, Any] = {"rfilename": str(file.relative_to(folder)), "size": size}
    if ".onnx" in file.name:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        row["lfs"] = {"sha256": digest, "size": size, "pointerSize": 130}
    return row


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> LoopbackHub:
        """The hub that this request is for."""
        found: LoopbackHub = self.server.hub  # type: ignore[attr-defined]
        return found

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append((self.command, path, self.headers.get("range")))
        if self.hub.status is not None:
            return self._refuse(self.hub.status, "ServerError")
        if path.startswith("/api/models/"):
            return self._info(path.removeprefix("/api/models/").partition("/revision/"))
        name, _, rest = path.strip("/").partition("/resolve/")
        file = self.hub.models.get(name, Path("/nonexistent")) / rest.partition("/")[2]
        return self._file(file) if file.is_file() else self._refuse(404, "EntryNotFound")

    def _info(self, asked: tuple[str, str, str]) -> None:
        name, _, revision = asked
        if name not in self.hub.models:
            return self._refuse(401, "RepoNotFound")
        if revision not in ("", "main", SHA):
            return self._refuse(404, "RevisionNotFound")
        folder = self.hub.models[name]
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        siblings = [*(_sibling(folder, file) for file in files), *self.hub.hostile]
        card = {"license": self.hub.licence} if self.hub.licence else {}
        return self._json({"id": name, "modelId": name, "sha": SHA, "siblings": siblings, "cardData": card})

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self._send(200, body, {"content-type": "application/json"})

    def _file(self, file: Path) -> None:
        whole = file.read_bytes()
        facts = {"etag": f'"{hashlib.sha256(whole).hexdigest()}"', "x-repo-commit": SHA, "accept-ranges": "bytes"}
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        body, status = whole[start:], 206 if self.headers.get("range") else 200
        if status == 206:
            facts["content-range"] = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
        if self.command == "GET" and self.hub.cut is not None and len(body) > self.hub.cut:
            cut, self.hub.cut = self.hub.cut, None
            self.hub.status = 403 if self.hub.dies else None
            self._send(status, body, facts, sent=cut)
            self.close_connection = True
            return
        if self.command == "GET" and self.hub.gone_after == file.name:
            self.hub.status = 403
        self._send(status, body, facts)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"x-error-code": code, "x-error-message": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str], sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:sent])

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""
