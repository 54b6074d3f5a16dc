import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "false"}
from asking import MODEL, MODEL_URL, ask, provider
from crewai import LLM, Agent, Crew, Task
from openinference.instrumentation.crewai import CrewAIInstrumentor

CrewAIInstrumentor().instrument(tracer_provider=provider())
llm = LLM(model=f"openai/{MODEL}", base_url=MODEL_URL, api_key="none")


def answer(question):
    agent = Agent(role="support", goal="Answer customers", backstory="A clerk.", llm=llm, max_retry_limit=0)
    task = Task(description=question, expected_output="One sentence.", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff(inputs={"question": question})


ask(answer)
