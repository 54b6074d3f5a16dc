from asking import DOCUMENTS, MODEL, MODEL_URL, ask, provider
from openinference.instrumentation.smolagents import SmolagentsInstrumentor

SmolagentsInstrumentor().instrument(tracer_provider=provider())
from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def search(query: str) -> str:
    """Search the documents.

    Args:
        query: what to look for
    """
    return DOCUMENTS[0]


model = OpenAIServerModel(model_id=MODEL, api_base=MODEL_URL, api_key="none", client_kwargs={"max_retries": 0})
ask(lambda question: ToolCallingAgent(tools=[search], model=model, max_steps=3).run(question))
