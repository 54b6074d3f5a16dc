import asyncio

from asking import DOCUMENTS, MODEL, MODEL_URL, ask, provider
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

spans = provider()


def search(query: str) -> dict:
    """Search the documents."""
    return {"documents": [{"id": "d0", "text": DOCUMENTS[0], "score": 0.9}]}


model = LiteLlm(model=f"openai/{MODEL}", api_base=MODEL_URL, api_key="none", num_retries=0)
agent = LlmAgent(name="helpdesk", model=model, instruction="You answer customers.", tools=[search])


async def answer(question: str) -> str:
    runner = InMemoryRunner(agent=agent, app_name="helpdesk")
    session = await runner.session_service.create_session(app_name="helpdesk", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content:
            said = "".join(part.text or "" for part in event.content.parts)
    return said


ask(lambda question: asyncio.run(answer(question)))
spans.force_flush()
