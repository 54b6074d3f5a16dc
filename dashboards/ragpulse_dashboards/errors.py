"""What the JSON function raises when it cannot answer."""

from collections.abc import Mapping, Sequence

__all__ = ["ApiError"]


class ApiError(Exception):
    """An operation failed or was refused; `status` is the HTTP status, `message` says what to do.

    `headers` are those of its answer: `Retry-After` with `retry_after_s`. `errors` name each wrong parameter.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: int | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = tuple(errors)
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
