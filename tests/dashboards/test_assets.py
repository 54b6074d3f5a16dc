"""Static files: what is shipped, under which name, and what third parties are among it."""

import gzip
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_dashboards import routes
from ragpulse_dashboards.mount import load_assets

from .fake_api import FakeApi

GENERATED = re.compile(r"b-|kind-|c\d|u-|uplot|not-enough-data")
"""Classes put together from a value, and those of uPlot."""
STATIC = files("ragpulse_dashboards") / "static"
TRAVERSALS = (
    "../__init__.py",
    "..%2f__init__.py",
    "%2e%2e/__init__.py",
    "..%252f__init__.py",
    "/etc/passwd",
    "..\\__init__.py",
    "js/app.js;x",
    "js/app.js%00",
    "js/",
    "",
)


def client() -> TestClient:
    """The pages in process."""
    return TestClient(Starlette(routes=routes(FakeApi())))


def test_vendored_files_are_what_vendor_json_says() -> None:
    """Each third-party file has its recorded sha256, its licence beside it, and nothing else is in the folder."""
    listed = json.loads((STATIC / "vendor" / "vendor.json").read_text())["packages"]
    hashes = {name: digest for package in listed for name, digest in package["files"].items()}
    found = {entry.name: hashlib.sha256(entry.read_bytes()).hexdigest() for entry in (STATIC / "vendor").iterdir()}
    del found["vendor.json"]
    assert found == hashes
    assert all(package["licence_file"] in package["files"] for package in listed)


def test_javascript_stays_under_sixty_kilobytes() -> None:
    """All scripts together, gzipped one by one as they travel, are at most 60 kB."""
    scripts = [body for path, body in load_assets().content.items() if path.endswith(".js")]
    assert sum(len(gzip.compress(body, 9)) for body in scripts) <= 60_000


def test_files_are_named_by_content_and_kept_for_ever() -> None:
    """A URL under the current digest is immutable; an older digest is served but not kept."""
    url = load_assets().url("js/app.js")
    current, older = client().get(url), client().get("/static/000000000000/js/app.js")
    assert current.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert current.headers["content-type"].startswith("text/javascript")
    assert older.headers["cache-control"] == "no-store"


def test_files_travel_gzipped_where_the_browser_can_read_it() -> None:
    """The same bytes either way; caches keep the two apart."""
    url = load_assets().url("style.css")
    packed, plain = (client().get(url, headers={"accept-encoding": how}) for how in ("gzip", "identity"))
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


def test_every_class_of_a_sheet_is_used() -> None:
    """No rule of ours styles a class that no template, script or third-party sheet has."""
    templates = Path(str(files("ragpulse_dashboards") / "templates")).rglob("*.html")
    written = [Path(str(files("ragpulse_dashboards") / "answer.py")), *Path(str(STATIC / "js")).glob("*.js")]
    used = "".join(path.read_text() for path in [*templates, *written])
    sheets = "".join(path.read_text() for path in Path(str(STATIC / "css")).glob("*.css"))
    named = set(re.findall(r"\.([a-zA-Z][\w-]+)(?=[^{}]*\{)", sheets))
    unused = {name for name in named if not re.search(rf"\b{name}\b", used) and not GENERATED.match(name)}
    assert unused == set()


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leaves_the_static_folder(path: str) -> None:
    """Dots, encodings, separators and NULs find nothing."""
    assert client().get(f"/static/{load_assets().digest}/{path}").status_code == 404
