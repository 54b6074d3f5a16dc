"""What decorators look at on every call: the tracer, or None while ragpulse is not configured or disabled."""

from ._call import Starter


class State:
    """The process's current tracer. `configure` and `shutdown` set it; nobody else does."""

    __slots__ = ("starter",)

    def __init__(self) -> None:
        self.starter: Starter | None = None


STATE = State()
