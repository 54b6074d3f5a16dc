"""An encrypted collector with certificates of one's own: a private authority, a certificate for the client."""

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import eventually

import ragpulse
from ragpulse_collector.cli import run

from .conftest import Collector, serve

if shutil.which("openssl") is None:
    pytest.skip("openssl, which makes the certificates, is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority's, a server's and a client's certificate and key."""
    folder = tmp_path_factory.mktemp("certificates")

    def make(name: str, *options: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        command = ("openssl", "req", "-x509", "-days", "2", "-subj", f"/CN={name}", *key, "-out", f"{name}.pem")
        subprocess.run([*command, *options], cwd=folder, check=True, capture_output=True)

    signed = ("-CA", "authority.pem", "-CAkey", "authority.key", "-addext", "basicConstraints=CA:FALSE")
    make("authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 asks for it
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    make("client", *signed)
    return folder


@pytest.fixture
def encrypted(certificates: Path) -> Iterator[Callable[..., Collector]]:
    """Starts a collector with the private authority's certificate, which may ask for the client's."""
    servers = []

    def start(*, asks_for_a_certificate: bool = False) -> Collector:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        if asks_for_a_certificate:
            context.load_verify_locations(certificates / "authority.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        collector = Collector()
        servers.append(serve(collector, tls=context))
        return collector

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _delivered(collector: Collector) -> ragpulse.Stats:
    ragpulse.configure(endpoint=collector.url)
    ragpulse.span(name="turn")(lambda: "fine")()

    def flushed() -> ragpulse.Stats:
        ragpulse.flush(timeout=0.2)
        return ragpulse.stats()

    stats = eventually(flushed, lambda stats: stats.exported or stats.last_error)
    ragpulse.shutdown(timeout=0)
    return stats


def test_a_private_authority_is_trusted_when_named(
    encrypted: Callable[..., Collector], certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `OTEL_EXPORTER_OTLP_CERTIFICATE`."""
    collector = encrypted()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificates / "authority.pem"))
    assert _delivered(collector).exported == 1
    assert collector.one("turn").attributes["output.value"] == "fine"


@pytest.mark.parametrize(
    ("scheme", "trusted", "line", "fix"),
    [
        ("https", False, "that is not trusted", "OTEL_EXPORTER_OTLP_CERTIFICATE=FILE"),
        ("http", False, "without an HTTP answer: is it https://", "start the collector"),
        ("https", True, "501 Unsupported method", None),
    ],
)
def test_the_command_line_and_doctor_name_the_fix(
    encrypted: Callable[..., Collector], certificates: Path, scheme: str, trusted: bool, line: str, fix: str | None,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One line with the cause; SSL_CERT_FILE names the authority to the command line and to the SDK."""
    url = encrypted().url.replace("https", scheme)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "authority.pem"))
    assert run(["traces", "--url", url]) == 1
    *_, printed = capsys.readouterr().err.splitlines()  # the server prints a line, too
    assert line in printed
    ragpulse.configure(endpoint=url)
    assert (fix or "collector: answers") in ragpulse.doctor()


def test_tls_to_a_server_without_it_is_told(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    """`https://` and a port that speaks http."""
    url = collector.url.replace("http", "https")
    assert run(["traces", "--url", url]) == 1
    assert "does not speak TLS" in capsys.readouterr().err
    ragpulse.configure(endpoint=url)
    assert "fix: the address does not speak TLS: begin endpoint= with http://" in ragpulse.doctor()


def test_an_unknown_authority_is_not_trusted(encrypted: Callable[..., Collector]) -> None:
    """Nothing is delivered, and the reason is reported."""
    collector = encrypted()
    stats = _delivered(collector)
    assert (stats.exported, stats.pending, collector.spans) == (0, 1, [])
    assert "certificate" in stats.last_error.lower()


@pytest.mark.parametrize("shown", [True, False])
def test_a_client_certificate_is_shown_when_named(
    encrypted: Callable[..., Collector], certificates: Path, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    """`..._CLIENT_CERTIFICATE` and `..._CLIENT_KEY`, also in the form for traces; without them the server refuses."""
    collector = encrypted(asks_for_a_certificate=True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", str(certificates / "authority.pem"))
    if shown:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(certificates / "client.pem"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(certificates / "client.key"))
    stats = _delivered(collector)
    assert (stats.exported, len(collector.spans)) == ((1, 1) if shown else (0, 0))


def test_a_certificate_file_that_is_not_there_is_told(
    encrypted: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application runs on; `stats` and `doctor` say what is missing."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/authority.pem")
    assert "FileNotFoundError" in _delivered(encrypted()).last_error
