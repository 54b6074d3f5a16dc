from asking import DOCUMENTS, MODEL, MODEL_URL, ask
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.telemetry import StrandsTelemetry

telemetry = StrandsTelemetry().setup_otlp_exporter()


@tool
def search(query: str) -> str:
    """Search the documents."""
    return DOCUMENTS[0]


model = OpenAIModel(client_args={"base_url": MODEL_URL, "api_key": "none", "max_retries": 0}, model_id=MODEL)
ask(
    lambda question: Agent(model=model, tools=[search], callback_handler=None, system_prompt="You answer customers.")(
        question
    )
)
telemetry.tracer_provider.force_flush()
