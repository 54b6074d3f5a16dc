import asyncio
import sys

from asking import DOCUMENTS, QUESTION, provider
from openinference.instrumentation.mcp import MCPInstrumentor

traces = provider()
MCPInstrumentor().instrument(tracer_provider=traces)
tracer = traces.get_tracer("mcp-application")
if sys.argv[1:] == ["serve"]:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("documents")

    @server.tool()
    def search(query: str) -> str:
        """Search the documents."""
        with tracer.start_as_current_span("search") as span:
            span.set_attributes({"openinference.span.kind": "RETRIEVER", "input.value": query})
            span.set_attribute("retrieval.documents.0.document.content", DOCUMENTS[0])
            return DOCUMENTS[0]

    server.run("stdio")
    sys.exit()
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    import os

    parameters = StdioServerParameters(command=sys.executable, args=[__file__, "serve"], env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        with tracer.start_as_current_span("answer") as span:
            span.set_attributes({"openinference.span.kind": "CHAIN", "input.value": QUESTION})
            result = await session.call_tool("search", {"query": QUESTION})
            span.set_attribute("output.value", "Five working days." if result.content else "")


asyncio.run(main())
