from asking import DOCUMENTS, OTLP_URL, ask, complete
from lmnr import Laminar, observe

address, port = OTLP_URL.rsplit(":", 1)
Laminar.initialize(project_api_key="none", base_url=address, http_port=int(port), grpc_port=int(port), force_http=True)
import openai

client = openai.OpenAI(max_retries=0)


@observe(name="search")
def search(query):
    return [{"id": f"d{number}", "text": text, "score": 0.9} for number, text in enumerate(DOCUMENTS)]


@observe()
def answer(question):
    texts = "\n".join(document["text"] for document in search(question))
    return complete(client, question, texts)


ask(answer)
Laminar.flush()
