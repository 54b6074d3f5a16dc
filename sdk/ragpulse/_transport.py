"""Batches to the collector over OTLP/HTTP. What that needs is imported when the first batch is sent."""

from typing import TYPE_CHECKING

from ._batch import Answer, Batch
from ._settings import Settings

if TYPE_CHECKING:
    from ssl import SSLContext

    from ._http import Poster


class HttpTransport:
    """Carries batches to the collector over OTLP/HTTP."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._posters: dict[str, Poster] = {}

    def send(self, batch: Batch, timeout: float | None) -> Answer:
        """Deliver the batch; never raises."""
        try:
            return self._poster(batch.path).post(
                batch.body, encoding="gzip" if batch.gzipped else None, timeout=timeout
            )
        except Exception as error:  # noqa: BLE001 - e.g. a certificate file that is not there
            return Answer(0, message=f"{type(error).__name__}: {error}")

    def _poster(self, path: str) -> "Poster":
        if path not in self._posters:
            from ._http import Poster

            destination = self._settings.destination
            self._posters[path] = Poster(
                destination.traces_url if path == "traces" else destination.logs_url,
                headers=destination.headers,
                timeout=destination.timeout,
                context=self._tls(),
            )
        return self._posters[path]

    def _tls(self) -> "SSLContext | None":
        destination = self._settings.destination
        if not destination.traces_url.startswith("https"):
            return None
        import ssl

        context = ssl.create_default_context(cafile=destination.certificate)
        if destination.client_certificate:
            context.load_cert_chain(*destination.client_certificate)
        return context

    def close(self) -> None:
        """Let connections go."""
        for poster in self._posters.values():
            poster.close()

    def forked(self) -> None:
        """In a forked child: the parent's connections are not ours to use."""
        self._posters = {}
