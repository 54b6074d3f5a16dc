"""What the JSON function raises when it cannot answer."""

__all__ = ["ApiError"]


class ApiError(Exception):
    """An operation was refused or failed; `status` is the HTTP status, `message` says what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
