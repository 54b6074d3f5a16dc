"""Static files under one hashed path, so that browsers can cache them forever.

The hash covers every file: ES modules import each other by relative path and still change name together.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["HTMX", "UPLOT", "Assets", "load_assets"]

HTMX: Final = "vendor/htmx-4.0.1.min.js"
UPLOT: Final = "vendor/uplot-1.6.32.min.js"
"""Third-party scripts, loaded by the pages that use them."""

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".json": "application/json",
}
_SHEETS = ("vendor/uplot-1.6.32.min.css", "css/tokens.css", "css/layout.css", "css/parts.css", "css/pages.css")
_STYLE = "style.css"
"""All sheets in one file: a page waits for its styles, and one request is faster than five."""
_IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True)
class Assets:
    """Every static file in memory, addressed by content."""

    digest: str
    """First 12 hex of the sha256 over all files; a part of every URL."""
    content: Mapping[str, bytes]
    """Path below `static/` to bytes; any other path is a 404, so no request opens a file."""
    packed: Mapping[str, bytes]
    """The same, gzipped once."""

    def url(self, path: str) -> str:
        """Return the URL of one file; raises KeyError for a file that is not shipped."""
        if path not in self.content:
            raise KeyError(path)
        return f"/static/{self.digest}/{path}"

    async def serve(self, request: Request) -> Response:
        """Answer `/static/{digest}/{path}`: immutable for the current digest, uncached for an older one."""
        path = request.path_params["path"]
        body = self.content.get(path)
        if body is None:
            return Response("No such file.", status_code=404, media_type="text/plain")
        current = request.path_params["digest"] == self.digest
        headers = {"Cache-Control": _IMMUTABLE if current else "no-store", "X-Content-Type-Options": "nosniff"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = self.packed[path]
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(body, media_type=_TYPES[Path(path).suffix], headers=headers)


def load_assets() -> Assets:
    """Read the packaged static files once."""
    files = (file for file in sorted(_FOLDER.rglob("*")) if file.suffix in _TYPES)
    content = {file.relative_to(_FOLDER).as_posix(): file.read_bytes() for file in files}
    content[_STYLE] = b"\n".join(content[sheet] for sheet in _SHEETS)
    digest = hashlib.sha256()
    for path, body in content.items():
        digest.update(f"{path}\0{len(body)}\0".encode() + body)
    packed = {path: gzip.compress(body, 9, mtime=0) for path, body in content.items()}
    return Assets(digest=digest.hexdigest()[:12], content=content, packed=packed)
