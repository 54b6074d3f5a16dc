"""The smallest application: three decorators, no framework. Start a collector (`ragpulse serve`), then run this."""

import re

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
    "warranty": "The warranty covers two years and does not cover water.",
}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@ragpulse.retriever
def search(query: str, k: int = 2) -> list[dict[str, object]]:
    ranked = sorted(NOTES.items(), key=lambda note: -len(words(query) & words(note[1])))
    return [{"id": name, "text": text, "score": len(words(query) & words(text)) / 10} for name, text in ranked[:k]]


@ragpulse.llm(model="extractive", provider="none")
def write(question: str, found: list[dict[str, object]]) -> str:
    return f"From our notes: {found[0]['text']}"


@ragpulse.rag(prompt_name="notes", prompt_version="v1")
def answer(question: str) -> str:
    return write(question, search(question))


def main() -> None:
    ragpulse.configure(service_name="plain-example")
    with ragpulse.attributes(session_id="demo", user_id="you"):
        print(answer("Is a refund possible after the purchase?"))
    ragpulse.flush()
    print(ragpulse.stats())


if __name__ == "__main__":
    main()
