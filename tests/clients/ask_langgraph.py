from asking import DOCUMENTS, MODEL, ask, provider
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor

LangChainInstrumentor().instrument(tracer_provider=provider())


@tool
def search(query: str) -> str:
    """Search the documents."""
    return DOCUMENTS[0]


agent = create_agent(ChatOpenAI(model=MODEL, max_retries=0), [search], system_prompt="You answer customers.")
ask(lambda question: agent.invoke({"messages": [{"role": "user", "content": question}]})["messages"][-1].content)
