from asking import DOCUMENTS, MODEL, ask, provider
from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

traces = provider()
traces._active_span_processor._span_processors = (
    OpenInferenceSpanProcessor(),
    *traces._active_span_processor._span_processors,
)
from pydantic_ai import Agent

Agent.instrument_all()
agent = Agent(f"openai:{MODEL}", system_prompt="You answer customers.")


@agent.tool_plain
def search(query: str) -> str:
    """Search the documents."""
    return DOCUMENTS[0]


ask(lambda question: agent.run_sync(question).output)
