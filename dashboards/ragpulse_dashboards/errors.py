"""What the JSON function raises when it cannot answer."""

__all__ = ["ApiError"]


class ApiError(Exception):
    """An operation was refused or failed; `status` is the HTTP status, `message` says what to do.

    `headers` are those of its answer: with `retry_after_s` they say when to come again.
    """

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
