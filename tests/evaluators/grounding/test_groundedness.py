"""The offline RAG checks through the registry: what they say, where they skip, what they survive."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragpulse_evaluators import Case, Context, EvaluationResult, get_evaluator
from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex
from ragpulse_evaluators.grounding.groundedness import assess
from ragpulse_evaluators.grounding.text import Word

TOWER = "The Eiffel Tower is 330 metres tall. It was completed in 1889 by the company of Gustave Eiffel."
PARIS = "Paris is the capital of France and not the largest city of Europe."
FRUIT = "Bananas are rich in potassium."
CHECKS = ("groundedness", "context_utilization", "citation_check", "refusal")


async def check(name: str, response: str | None, *contexts: str) -> EvaluationResult:
    """Run a check by name."""
    return await get_evaluator(name)(Case(response=response, contexts=contexts or None))


@pytest.mark.anyio
async def test_copied_answer_is_grounded() -> None:
    """An answer in the words of the contexts passes, and each sentence names the rank of its evidence."""
    result = await check(
        "groundedness", "The Eiffel Tower is 330 metres tall. Paris is the capital of France.", TOWER, PARIS
    )
    assert result.passing is True
    assert result.label == "grounded"
    assert [s["rank"] for s in result.parts["sentences"]] == [1, 2]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("The Eiffel Tower is 130 metres tall.", "130 metres here, 330 metres in the evidence"),
        ("The Eiffel Tower is 330 feet tall.", "330 feet here, 330 metres in the evidence"),
        ("The Eiffel Tower was completed in 1898 by the company of Gustave Eiffel.", "1898 here, 1889 in the evidence"),
        ("It was completed in 1889 by the company of Gustave Dumas.", "'Dumas' here, 'Eiffel' in the evidence"),
        ("Paris is not the capital of France.", "negated here, not in the evidence"),
        ("Paris is the capital of France and the largest city of Europe.", "negated in the evidence, not here"),
        ("Paris is the capital of France and not the smallest city of Europe.", "'smallest' here, 'largest' in the"),
    ],
)
async def test_one_wrong_fact_is_named(response: str, reason: str) -> None:
    """A single swapped fact makes the sentence ungrounded and the reason says which."""
    result = await check("groundedness", response, TOWER, PARIS)
    assert result.passing is False
    assert any(found.startswith(reason) for found in result.parts["sentences"][0]["reasons"])
    assert reason in (result.explanation or "")


@pytest.mark.anyio
@pytest.mark.parametrize("response", ["Zebras do not fly.", "Zebras never sleep or quit."])
async def test_answer_without_any_evidence_fails(response: str) -> None:
    """No context shares a word with it: there is no evidence to point at."""
    result = await check("groundedness", response, TOWER, FRUIT)
    assert (result.passing, result.parts["sentences"][0]["rank"]) == (False, None)


@pytest.mark.anyio
async def test_offsets_point_into_the_texts() -> None:
    """Sentence offsets cut the response, evidence offsets cut the context of that rank."""
    response = "Well. The tower was completed in 1889! 🙂 Bananas are rich in potassium"
    contexts = (FRUIT, TOWER)
    result = await check("groundedness", response, *contexts)
    said = [s.evidence for s in assess(response, contexts).sentences]
    for part, evidence in list(zip(result.parts["sentences"], said, strict=True))[1:]:
        assert response[part["start"] : part["end"]] == part["text"]
        assert contexts[part["rank"] - 1][part["evidence_start"] : part["evidence_end"]] == evidence
    assert [p["rank"] for p in result.parts["sentences"][1:]] == [2, 1]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("right", "wrong", "context"),
    [
        ("埃菲尔铁塔高330米。", "埃菲尔铁塔高130米。", "埃菲尔铁塔高330米，于1889年建成。"),
        ("巴黎是法国的首都。", "巴黎不是法国的首都。", "巴黎是法国的首都，位于塞纳河畔。"),
        ("برج إيفل ارتفاعه 330 متر", "برج إيفل ارتفاعه 130 متر", "برج إيفل ارتفاعه 330 متر وبني عام 1889"),
        ("La torre mide 330 metros.", "La torre mide 130 metros.", "La torre mide 330 metros y es de hierro."),
        ("Der Turm ist 330 Meter hoch.", "Der Turm ist nicht 330 Meter hoch.", "Der Turm ist 330 Meter hoch."),
    ],
)
async def test_languages(right: str, wrong: str, context: str) -> None:
    """The right sentence passes and the wrong one fails in Chinese, Arabic, Spanish and German."""
    assert (await check("groundedness", right, context)).passing is True
    assert (await check("groundedness", wrong, context)).passing is False


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "context"),
    [
        ("It has two wings.", "The house has 2 wings and a garden."),
        ("It sold 2.5 million copies.", "The book sold 2,500,000 copies."),
        ("Second prize went to Ann in 2nd place.", "Second prize went to Ann in second place."),
        ("It opened in February 2011.", "It opened on 2011-02-23."),
        ("有三十个学生。", "班上有30个学生。"),
    ],
)
async def test_same_number_in_another_spelling(said: str, context: str) -> None:
    """A number written otherwise is the same number: no objection."""
    reasons = (await check("groundedness", said, context)).parts["sentences"][0]["reasons"]
    assert not [r for r in reasons if r.startswith(("number", "month"))]


@pytest.mark.anyio
@pytest.mark.parametrize("name", CHECKS[:3])
async def test_missing_fields_are_named(name: str) -> None:
    """Without response, contexts or context texts the result is skipped and names what is missing."""
    evaluator = get_evaluator(name)
    assert (await evaluator(Case(contexts=[TOWER]))).explanation == "missing: response"
    assert (await evaluator(Case(response="Yes it is."))).explanation == "missing: contexts"
    empty = await evaluator(Case(response="It is tall [1].", contexts=[{"id": "a"}]))
    assert (empty.status, empty.explanation) == ("skipped", "missing: contexts (none has a text)")


@pytest.mark.anyio
async def test_answer_without_claim_is_skipped() -> None:
    """A refusal and a bare "yes" claim nothing, so there is nothing to ground."""
    for response in ("I do not know the answer.", "Yes, it is.", "🙂🙂", ""):
        assert (await check("groundedness", response, TOWER)).status == "skipped"


@pytest.mark.anyio
async def test_context_without_text_counts_nowhere() -> None:
    """Contexts without text are left out of the share; ranks stay those of the retriever."""
    case = Case(response="Bananas are rich in potassium.", contexts=[{"id": "a"}, {"text": TOWER}, {"text": FRUIT}])
    result = await get_evaluator("context_utilization")(case)
    assert result.score == 0.5
    assert result.parts["used"] == [3]
    assert [c["rank"] for c in result.parts["contexts"]] == [2, 3]


@pytest.mark.anyio
async def test_equal_contexts_are_all_used() -> None:
    """Two copies of the passage an answer draws on both count as used."""
    result = await check("context_utilization", "Bananas are rich in potassium.", FRUIT, PARIS, FRUIT)
    assert result.parts["used"] == [1, 3]


@pytest.mark.anyio
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "not " * 60_000,
        "A. " * 60_000,
        "[1] " * 30_000,
        "你好。" * 40_000,
        "\n-\n" * 60_000,
        "1,2.3:" * 30_000,
        "[" * 100_000,
    ],
    ids=["one word", "negations", "sentences", "marks", "chinese", "bullets", "numbers", "nested"],
)
async def test_hostile_size_is_bounded(name: str, text: str) -> None:
    """Huge texts end with a valid result: work is bounded whatever the text is made of."""
    result = await check(name, text, text)
    assert result.status in ("ok", "skipped"), result.error
    assert result.normalized is None or 0.0 <= result.normalized <= 1.0


@pytest.mark.anyio
@pytest.mark.parametrize("name", CHECKS)
async def test_results_are_json_and_repeat(name: str) -> None:
    """The same case gives the same bytes, parts included."""
    first = await check(name, "The tower is 330 metres tall [1]. Not sold {in} Peru [7].", TOWER)
    second = await check(name, "The tower is 330 metres tall [1]. Not sold {in} Peru [7].", TOWER)
    assert first.model_dump_json() == second.model_dump_json()
    assert json.loads(json.dumps(first.parts)) == first.parts


@pytest.mark.anyio
async def test_an_exchanged_name_shows_in_text_without_capitals() -> None:
    """A new word between the neighbours of a name of the evidence is an objection; a synonym is none."""
    context = "The Harry Potter books were written by the British author J. K. Rowling, who worked as a lawyer."
    wrong = await check("groundedness", "the harry kowalski books were written by the british author", context)
    right = await check("groundedness", "rowling, who worked as an attorney.", context)
    assert wrong.passing is False
    assert "'kowalski' here, 'Potter' in the evidence" in (wrong.explanation or "")
    assert right.passing is not False
    assert right.parts["sentences"][0]["reasons"] == ["not in the contexts: 'attorney'"]


@pytest.mark.anyio
async def test_free_wording_is_unclear() -> None:
    """Neither pass nor fail, with a score and a reason; with a threshold every answer passes or fails."""
    response, context = "You have to wait a working week for your money.", "Refunds take five working days."
    result = await check("groundedness", response, context)
    assert (result.status, result.passing, result.label, result.unclear) == ("ok", None, "unclear", True)
    assert 0.0 < result.parts["weakest"] < 1.0
    assert "worded too freely" in (result.explanation or "")
    assert [s["supported"] for s in result.parts["sentences"]] == [None]
    strict = await get_evaluator("groundedness", threshold=0.9)(Case(response=response, contexts=[context]))
    assert (strict.passing, strict.unclear) == (False, False)


FIRST_CONTACT = Path(__file__).parents[1] / "fixtures" / "grounding_first_contact.jsonl"


def test_wrong_quantities_fail_and_right_ones_do_not() -> None:
    """The three sentences of the first contact and ten like them, in letters and digits, units and times."""
    wrong = []
    for row in map(json.loads, FIRST_CONTACT.read_text(encoding="utf-8").splitlines()):
        assert [text for text in row["right"] if assess(text, [row["context"]]).passing is False] == []
        wrong += [(text, assess(text, [row["context"]]).passing) for text in row["wrong"]]
    assert len(wrong) == 13
    assert [text for text, passing in wrong if passing is not False] == []


@pytest.mark.parametrize(
    ("response", "passing"),
    [
        ("Refunds take five weeks.", False),
        ("Refunds take ten working days.", False),
        ("The office opens at 9 pm.", False),
        ("Tickets cost a hundred euros.", False),
        ("Tickets cost twelve dollars.", False),
        ("The trial lasts 14 hours.", False),
        ("60 per cent of the members voted.", False),
        ("It opened on 2019-03-15.", False),
        ("Refunds take one week.", True),
        ("Tickets cost €12.", True),
        ("The trial lasts a fortnight.", True),
        ("50 percent of the members voted.", True),
        ("It opened on March 5th, 2019.", True),
    ],
)
def test_a_number_said_of_something_else_supports_no_quantity(response: str, passing: bool) -> None:
    """A bare 5 of a date elsewhere does not say "five weeks"; the same value in its own sentence does."""
    context = (
        "Refunds take five working days. The office opens at 9 am. Tickets cost 12 euros. The trial lasts 14 days. "
        "Half of the members voted. It opened on 5 March 2019."
    )
    assert (assess(response, [context]).passing is not False) is passing


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("response", "passing"),
    [
        ("It offers outdoor seating.", False),
        ("It does not offer outdoor seating.", True),
        ("It is open on Monday from 5:30 pm to 11 pm.", True),
        ("It is open on Monday from 6:30 pm to 11 pm.", False),
        ("Parking in a garage is available.", True),
        ("It has valet parking.", True),
    ],
)
async def test_json_is_read_by_key_and_value(response: str, passing: bool) -> None:
    """A value of false or "no" denies its key, null leaves it open; times and numbers are read as values."""
    context = json.dumps(
        {
            "name": "Finch",
            "hours": {"Monday": "17:30-23:0"},
            "attributes": {"OutdoorSeating": False, "BusinessParking": {"garage": True, "valet": None}},
        }
    )
    result = await check("groundedness", response, context)
    assert (result.passing is not False) is passing, result.explanation


@pytest.mark.parametrize(
    ("context", "other"),
    [
        ("බැංකුව සඳුදා පොලී අනුපාතය ඉහළ නැංවීය", "ගෙවත්තේ මල් පිපී ඇත සහ කුරුල්ලෝ ගයති"),
        ("ބޭންކުން ހޯމަ ދުވަހު އިންޓްރެސްޓް މައްޗަށް ޖެއްސި", "ބަގީޗާގައި މާތައް ފޮޅިއްޖެ އަދި ދޫނިތައް"),
        ("དངུལ་ཁང་གིས་གཟའ་ཟླ་བར་སྐྱེད་ཚད་མཐོ་རུ་བཏང་", "ལྡུམ་རའི་ནང་མེ་ཏོག་བཞད་ཅིང་བྱ་རྣམས་སྐད་འབྱིན་"),
        ("வங்கி திங்கட்கிழமை வட்டி விகிதத்தை உயர்த்தியது", "தோட்டத்தில் பூக்கள் மலர்ந்தன பறவைகள் பாடுகின்றன"),
        ("ব্যাংক সোমবার সুদের হার বাড়িয়েছে", "বাগানে ফুল ফুটেছে এবং পাখি গান গায়"),
        ("बैंक ने सोमवार को ब्याज दर बढ़ाई", "बगीचे में फूल खिले हैं और पक्षी गा रहे हैं"),
        ("ባንኩ ሰኞ የወለድ መጠን ከፍ አደረገ", "በአትክልቱ ውስጥ አበቦች አብበዋል ወፎችም ይዘምራሉ"),
        ("ბანკმა ორშაბათს საპროცენტო განაკვეთი გაზარდა", "ბაღში ყვავილები აყვავდა და ჩიტები მღერიან"),
        ("הבנק העלה את הריבית ביום שני", "בגן פרחו פרחים וציפורים שרות"),
        ("은행이 월요일에 금리를 인상했다", "정원에 꽃이 피고 새들이 노래한다"),
    ],
    ids=["Sinhala", "Thaana", "Tibetan", "Tamil", "Bengali", "Hindi", "Amharic", "Georgian", "Hebrew", "Korean"],
)
def test_unrelated_sentences_fail_in_every_script(context: str, other: str) -> None:
    """Vowel signs belong to their word, so that letters alone are no words in common."""
    assert assess(context, [context]).passing is True
    unrelated = assess(other, [context])
    assert unrelated.passing is False
    assert (unrelated.score or 0.0) < 0.5


@pytest.mark.anyio
@pytest.mark.parametrize("name", CHECKS[:3])
@pytest.mark.parametrize(
    "text",
    [
        "ธนาคารขึ้นดอกเบี้ยวันจันทร์ [1]",
        "ທະນາຄານຂຶ້ນດອກເບ້ຍ [1]",
        "ဘဏ်က အတိုးနှုန်း တိုးမြှင့်သည် [1]",
        "ធនាគារដំឡើងអត្រាការប្រាក់ [1]",
        "ꦧꦁꦏ꧀ꦔꦸꦁꦒꦃꦲꦏꦺꦧꦸꦔ [1]",
    ],
    ids=["Thai", "Lao", "Burmese", "Khmer", "Javanese"],
)
async def test_scripts_without_spaces_are_skipped(name: str, text: str) -> None:
    """Letters alone say nothing of words: no score is better than one that everything passes."""
    for response, context in ((text, text), (text, TOWER), ("The tower is tall [1].", text)):
        result = await check(name, response, context)
        assert result.status == "skipped"
        assert "cannot split into words" in (result.explanation or "")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "said",
    [
        "The documents don't say more about this.",
        "There is no information about refunds in the context.",
        "The passages do not mention a fee.",
        "I hope this helps!",
    ],
)
async def test_sentences_about_the_sources_claim_nothing(said: str) -> None:
    """What the sources do not say cannot be in them; such a sentence lowers nothing."""
    alone = await check("groundedness", "Bananas are rich in potassium.", FRUIT)
    beside = await check("groundedness", f"Bananas are rich in potassium. {said}", FRUIT)
    assert (beside.score, beside.passing) == (alone.score, True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "response",
    [
        "Bananas are rich in potassium.",
        "**Bananas** are rich in potassium [1].",
        "Based on the documents, bananas are rich in potassium.",
    ],
)
async def test_a_grounded_answer_uses_its_context(response: str) -> None:
    """What supports a claim is used: both read the same sentences."""
    assert (await check("groundedness", response, FRUIT, TOWER)).passing is True
    assert (await check("context_utilization", response, FRUIT, TOWER)).parts["used"] == [1]


def test_the_checks_of_one_case_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What groundedness compared is there for context_utilization, whatever names the contexts have."""
    document = Context(text="The Tower of Brisa is 330 metres tall.", metadata={"source": "plan.md"})
    case = Case(response="Another Tower of Brisa is 330 m tall.", contexts=[document])
    compared: list[int] = []
    support = EvidenceIndex.support

    def counted(index: EvidenceIndex, tokens: Sequence[Word]) -> list[ContextSentence]:
        compared.append(len(tokens))
        return support(index, tokens)

    monkeypatch.setattr(EvidenceIndex, "support", counted)
    statuses = [get_evaluator(name).at_once(case).status for name in ("groundedness", "context_utilization")]
    assert (statuses, len(compared)) == (["ok", "ok"], 1)
