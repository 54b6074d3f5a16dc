"""`/mcp`: the tools of `ragpulse mcp` over HTTP, with the keys and bindings of the API. Each request stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ragpulse_collector.api.guard import ACTOR
from ragpulse_collector.api.http import dump, refusal
from ragpulse_collector.api.operations import Operations
from ragpulse_collector.api.params import Caller
from ragpulse_collector.interface import signatures
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import BINDING


class Assistants:
    """An ASGI application. Its library loads with the first request: few collectors have an assistant."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message."""
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from ragpulse_collector.mcp_server import answering
        except ModuleNotFoundError as error:
            reason = Refusal(
                f"{error.name} is not installed beside the collector: pip install 'ragpulse[mcp]'", status=501
            )
            await refusal(Request(scope), reason)(scope, receive, send)
            return

        async def ask(operation: str, values: Mapping[str, Any]) -> Any:
            caller = Caller(scope.get(ACTOR) or "assistant", "", scope.get(BINDING))
            return orjson.loads(dump(await self._operations.call(*signatures()[operation].request(values), caller)))

        manager = StreamableHTTPSessionManager(answering(ask), json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)
