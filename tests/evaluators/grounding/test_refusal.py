"""`refusal`: declining is told from answering in six languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators import Case, get_evaluator
from ragpulse_evaluators.grounding.refusal import DECLINES, declining_at, may_decline

REFUSALS = (
    "I don't know.",
    "I'm sorry, but I can't answer that based on the provided context.",
    "The documents do not mention the price. Please contact support.",
    "There is no information about refunds in the context.",
    "抱歉，我无法根据提供的文档回答这个问题。",
    "文档中没有提到退款的相关信息。",
    "我不知道。",
    "Lo siento, no puedo responder a esa pregunta.",
    "El contexto no contiene información sobre el precio.",
    "Desculpe, não sei a resposta.",
    "Os documentos não mencionam o preço.",
    "Leider kann ich diese Frage nicht beantworten.",
    "Der Kontext enthält keine Informationen dazu.",
    "Je suis désolé, je ne peux pas répondre à cette question.",
    "Le contexte ne mentionne pas le prix.",
    "",
    "...",
)
ANSWERS = (
    "The tower is 330 metres tall.",
    "You cannot return items after 30 days.",
    "I can't believe how tall it is: 330 metres!",
    "The manual does not say who built it, but the tower was completed in 1889 by the company of Gustave Eiffel, "
    "which also delivered the iron frame of the Statue of Liberty in New York.",
    "Nobody knows who wrote the Voynich manuscript.",
    "There is no evidence that the drug works.",
    "退货需要在30天内提出申请。",
    "No se aceptan devoluciones después de 30 días.",
    "Não aceitamos devoluções depois de 30 dias.",
    "Sie können Artikel leider nicht nach 30 Tagen zurückgeben.",
    "Les articles ne peuvent pas être retournés après 30 jours.",
)


@pytest.mark.anyio
@pytest.mark.parametrize("response", REFUSALS)
async def test_refusals(response: str) -> None:
    """A response that declines is a refusal, normalized 0."""
    result = await get_evaluator("refusal")(Case(response=response))
    assert (result.label, result.normalized) == ("refused", 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("response", ANSWERS)
async def test_answers(response: str) -> None:
    """A response that tells something is an answer, also where it says "cannot" or admits one gap."""
    result = await get_evaluator("refusal")(Case(response=response))
    assert (result.label, result.normalized) == ("answered", 1.0), result.explanation


@given(st.from_regex(DECLINES))
def test_no_phrase_is_passed_over(text: str) -> None:
    """Whatever a phrase matches is looked at, in capitals too."""
    for form in (text, text.upper(), text.title()):
        if match := DECLINES.search(form):
            assert may_decline(form)
            assert getattr(declining_at(form), "span", list)() == match.span()
