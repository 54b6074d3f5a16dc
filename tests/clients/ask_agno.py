from agno.agent import Agent
from agno.models.openai import OpenAIChat
from asking import DOCUMENTS, MODEL, ask, provider
from openinference.instrumentation.agno import AgnoInstrumentor

AgnoInstrumentor().instrument(tracer_provider=provider())


def search(query: str) -> str:
    """Search the documents."""
    return DOCUMENTS[0]


agent = Agent(model=OpenAIChat(id=MODEL, max_retries=0), tools=[search], telemetry=False)
ask(lambda question: agent.run(question).content)
