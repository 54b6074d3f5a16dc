import dspy
from asking import DOCUMENTS, MODEL, MODEL_URL, ask, provider
from openinference.instrumentation.dspy import DSPyInstrumentor

DSPyInstrumentor().instrument(tracer_provider=provider())
dspy.configure(
    lm=dspy.LM(
        f"openai/{MODEL}",
        api_base=MODEL_URL,
        api_key="none",
        cache=False,
        num_retries=0,
        max_tokens=16000,
        temperature=1.0,
    )
)


class Rag(dspy.Module):
    def __init__(self):
        super().__init__()
        self.respond = dspy.Predict("context, question -> answer")

    def forward(self, question):
        return self.respond(context=DOCUMENTS, question=question)


ask(lambda question: Rag()(question=question).answer)
