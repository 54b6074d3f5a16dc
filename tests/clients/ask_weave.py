import openai
import weave
from asking import DOCUMENTS, MODEL, ask, provider

traces = provider()  # as weave.init() would make it; it leaves an application's own provider alone
client = openai.OpenAI(max_retries=0)


def answer(question):
    with weave.start_conversation(agent_name="helpdesk"), weave.start_turn(user_message=question, model=MODEL):
        with weave.start_tool(name="search", arguments={"query": question}) as tool:
            tool.result = [{"id": f"d{number}", "content": text} for number, text in enumerate(DOCUMENTS)]
        messages = [{"role": "system", "content": DOCUMENTS[0]}, {"role": "user", "content": question}]
        with weave.start_llm(model=MODEL, provider_name="openai") as llm:
            reply = client.chat.completions.create(model=MODEL, messages=messages)
            text = reply.choices[0].message.content
            llm.record(
                input_messages=[weave.Message(**message) for message in messages],
                output_messages=[weave.Message(role="assistant", content=text)],
                usage=weave.Usage(input_tokens=reply.usage.prompt_tokens, output_tokens=reply.usage.completion_tokens),
            )
        return text


ask(answer)
traces.force_flush()
