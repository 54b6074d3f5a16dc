from agents import Agent, Runner, function_tool
from asking import DOCUMENTS, MODEL, ask, provider
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

OpenAIAgentsInstrumentor().instrument(tracer_provider=provider())


@function_tool
def search(query: str) -> str:
    """Search the documents."""
    return DOCUMENTS[0]


agent = Agent(name="support", instructions="You answer customers.", tools=[search], model=MODEL)
ask(lambda question: Runner.run_sync(agent, question).final_output)
