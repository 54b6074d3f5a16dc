"""`refusal`: does the response decline to answer? Read by phrases, so a silent evasion counts as an answer.

The phrases are one tuple of patterns per language. Contractions are written out before matching ("can't" is read as
"cannot"), case is ignored.
"""

import re
from functools import cache, lru_cache
from types import MappingProxyType

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import PlainEvaluator
from ragpulse_evaluators.grounding.markup import claims_nothing, read_markup
from ragpulse_evaluators.grounding.text import Kept, content_size, split_sentences
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

_CONTRACTIONS = (("can't", "cannot"), ("won't", "will not"), ("n't", " not"), ("'m", " am"), ("can not", "cannot"))

_SOURCES = (
    r"(?:the |this |these |my |any |your )?(?:\w+ ){0,2}?(?:context|documents?|sources?|passages?|text|information"
    r"|materials?|articles?|knowledge base|excerpts?|search results?|data)"
)
_VERBS = (
    r"(?:answer|help|assist|find|determine|provide|locate|comply|tell|say|respond|confirm|share|discuss|give|do that"
    r"|fulfill)"
)
_EN = (
    rf"\bi (?:cannot|could not|am not able to|am unable to|will not|was unable to) (?:\w+ )?{_VERBS}",
    r"\bi am (?:sorry|afraid),? (?:but )?i (?:cannot|could not|do not|am unable|am not able)",
    r"^(?:\W*(?:sorry|unfortunately|hmm|well)\W+(?:but )?)?i (?:really |honestly )?do not know(?: the answer)?"
    r"(?:\W*$| (?:based|from|how|what|who|when|where|why|if|whether|that|about))",
    r"\bi do not have (?:\w+ ){0,3}(?:information|data|details|knowledge|context|access|answer)",
    r"\b(?:there is|there's|there are|i (?:have|found|see)) (?:no|not enough|insufficient) (?:\w+ ){0,3}"
    rf"(?:(?:information|mention|answer|details|documents?|context)\b|(?:data|evidence|results?)\b"
    rf"(?! (?:that|of|for|to|against|showing|suggesting)\b(?!.*\b{_SOURCES})))",
    rf"\b{_SOURCES} (?:provided |given |above |available |retrieved )?(?:does not|do not|did not) (?:\w+ )?"
    r"(?:contain|mention|provide|include|say|specify|state|cover|answer|address|discuss|have|give|indicate)",
    r"\b(?:no|none of the) (?:relevant |retrieved |provided |given )?(?:documents?|sources?|contexts?|passages?"
    r"|results?) (?:\w+ )?(?:match|answer|mention|contain|address|cover|found|were found|was found)",
    r"\bno (?:relevant )?(?:information|answer|results?) (?:\w+ )?(?:found|available|provided)",
    r"\b(?:this|the|your) question cannot be answered",
    rf"\b(?:unable|not able|not possible|impossible) to (?:\w+ )?{_VERBS}\b.*\b(?:based|from|in|with|using) (?:\w+ )*?"
    rf"{_SOURCES}",
    r"\bnot (?:enough|sufficient) (?:information|context|data)|\binsufficient (?:information|context)",
    r"\b(?:is|are|was|were) not (?:mentioned|specified|stated|provided|covered|addressed|discussed) (?:\w+ )?"
    rf"(?:in|by) {_SOURCES}",
    r"^\W*(?:unknown|n/?a|no answer|unanswerable|not (?:specified|mentioned|found|available))\W*$",
)
_ZH = (
    r"(?:抱歉|对不起|很遗憾|對不起|不好意思)[^。！？]{0,12}(?:无法|無法|不能|没有|沒有|不知道|不清楚|找不到)",
    r"(?:我|本助手|目前|暂时)?(?:无法|無法|不能)(?:回答|确定|確定|提供|得知|判断|找到|帮助|协助|从)",
    r"(?:不知道|不清楚|不太清楚|不了解)(?:答案|该|这个|這個|怎么|如何)?[。.!！]?$",
    r"(?:没有|沒有|未)(?:找到|提及|提到|提供|包含|说明|說明|给出|涉及|足够的?)[^。]{0,12}"
    r"(?:信息|資訊|资料|資料|内容|內容|答案|说明|数据|文档)",
    r"(?:上下文|文档|文檔|资料|資料|文章|材料|段落|信息|来源)(?:中|里|裡)?[^。]{0,8}(?:没有|沒有|未|并未|並未|不足|不包含)",
    r"(?:信息|资料|資料|上下文)不足",
)
_ES = (
    r"\b(?:lo siento|lamentablemente|disculpe|perdón)\b[^.]{0,20}\bno (?:\w+ )?"
    r"(?:sé|puedo|podemos|tengo|dispongo|encuentro)\b",
    r"\bno (?:puedo|podemos|es posible|se puede|me es posible) (?:\w+ )?"
    r"(?:responder|contestar|ayudar\w*|encontrar|determinar|proporcionar|dar|saber|confirmar)",
    r"^\W*(?:yo )?no (?:lo )?sé\b",
    r"\bno (?:tengo|dispongo de|hay|cuento con|encontré|he encontrado|existe) (?:\w+ ){0,3}"
    r"(?:información|datos|respuesta|detalles|documentos?|resultados)",
    r"\b(?:contexto|documentos?|textos?|fuentes?|información|pasajes?)(?: \w+){0,2} no (?:\w+ )?"
    r"(?:contienen?|mencionan?|proporcionan?|incluyen?|dicen?|especifican?|indican?)",
    r"\bno se (?:menciona|especifica|indica|proporciona)",
    r"\binformación (?:es )?insuficiente",
)
_PT = (
    r"\b(?:desculpe|sinto muito|lamento|infelizmente)\b[^.]{0,20}\bnão (?:\w+ )?"
    r"(?:sei|posso|consigo|podemos|tenho|encontrei)\b",
    r"\bnão (?:posso|consigo|podemos|é possível|foi possível|pude|consegui) (?:\w+ )?"
    r"(?:responder|ajudar|encontrar|determinar|fornecer|dar|dizer|confirmar|localizar)",
    r"^\W*(?:eu )?não sei\b",
    r"\bnão (?:tenho|disponho de|há|existem?|encontrei) (?:\w+ ){0,3}"
    r"(?:informaç(?:ão|ões)|dados|resposta|detalhes|documentos?|resultados)",
    r"\b(?:contextos?|documentos?|textos?|fontes?|informaç(?:ão|ões)|trechos?)(?: \w+){0,2} não (?:\w+ )?"
    r"(?:contêm|contém|menciona\w*|fornece\w*|inclu\w+|diz\w*|especifica\w*|indica\w*)",
    r"\bnão (?:é|foi|são|está) (?:mencionad|especificad|informad)[oa]s?",
    r"\binformaç(?:ão|ões) insuficientes?",
)
_DE = (
    r"\b(?:tut mir leid|leider|entschuldigung|bedaure)\b[^.]{0,40}\b(?:nicht|kein\w*) (?:\w+ ){0,2}"
    r"(?:beantworten|helfen|sagen|weiterhelfen|informationen|angaben|antwort)\b",
    r"\b(?:kann|können|konnte) (?:ich |wir )?(?:\w+ ){0,4}?(?:nicht|keine\w*) (?:\w+ ){0,2}"
    r"(?:beantworten|helfen|finden|bestimmen|sagen|feststellen|angeben|geben|ermitteln)",
    r"^\W*(?:das )?(?:ich )?weiß (?:ich |es |das )*nicht\b",
    r"\b(?:habe|liegen|gibt es|finde|enthalten|gefunden)\b[^.]{0,25}\bkeine? (?:\w+ ){0,2}"
    r"(?:informationen|angaben|daten|antwort|hinweise|treffer|dokumente)",
    r"\b(?:kontext|dokumente?|quellen?|texte?|abschnitte?)\b[^.]{0,25}\b(?:enth\w+|erwähn\w+|nenn\w+|geh\w+|sag\w+)\b"
    r"[^.]{0,25}\b(?:nicht|kein\w*)\b",
    r"\bkeine (?:ausreichenden )?informationen\b|\bnicht genügend informationen\b",
)
_FR = (
    r"\b(?:désolée?|malheureusement|je regrette)\b[^.]{0,30}\b(?:je ne (?:sais|peux|trouve|suis)|je n'ai)\b",
    r"\bje (?:ne |n')(?:peux|puis|suis|parviens|trouve|pourrai)\b[^.]{0,15}\b(?:pas|aucune?)?\b[^.]{0,15}"
    r"\b(?:répondre|aider|trouver|déterminer|fournir|donner|dire|confirmer|en mesure|information)",
    r"^\W*je (?:ne )?(?:le )?sais pas\b",
    r"\b(?:je n'ai|il n'y a|nous n'avons)(?: trouvé)? (?:pas|aucune?)(?: \w+){0,3}? ?"
    r"(?:d'informations?|informations?|réponse|données|détails|documents?|résultats?)",
    r"\b(?:contexte|documents?|textes?|sources?|informations?|passages?)(?: \w+){0,2} (?:ne |n')(?:\w+ )?"
    r"(?:contien\w+|mentionn\w+|fourni\w+|inclu\w+|di\w+|précis\w+|indiqu\w+|permet\w*)",
    r"\b(?:n'est|ne sont|n'est) pas (?:mentionn|précis|indiqu|fourni)",
)
DECLINES = re.compile("|".join(f"(?:{p})" for p in (*_EN, *_ZH, *_ES, *_PT, *_DE, *_FR)), re.IGNORECASE | re.MULTILINE)
OFFERS = re.compile(
    r"\b(?:please|sorry|apologi[sz]e|let me know|feel free|happy to|could you|can you|would you like|try|contact"
    r"|consult|por favor|bitte|veuillez|s'il vous plaît|n'hésitez)\b|请|請|如果您|抱歉",
    re.IGNORECASE,
)


_WORD = re.compile(r"\w+")
_HELD = (
    (_EN[:-1], frozenset({"no", "not", "cannot", "none", "unable", "insufficient"}), ()),
    (_EN[-1:], frozenset({"no", "not", "unknown", "unanswerable", "n", "na"}), ()),
    (_ZH, frozenset[str](), ("不", "没", "沒", "未", "无", "無")),
    (_ES, frozenset({"no", "información"}), ()),
    (_PT, frozenset({"não", "informação", "informações"}), ()),
    (_DE, frozenset[str](), ("nicht", "kein")),
    (_FR, frozenset({"ne", "n", "pas"}), ()),
)
"""Each phrase holds one of the words or parts beside it."""


def may_decline(text: str) -> bool:
    """Tell whether `DECLINES` could match at all: each of its phrases holds one of a few words or parts.

    A hundred phrases take a millisecond for a page of text that has none of them, this a fiftieth.
    """
    return any(map(_HINTS.__getitem__, text.split()))


def _may_match(text: str) -> tuple[bool, ...]:
    """By row of `_HELD`."""
    folded = _folded(text)
    words = _WORD.findall(folded)
    return tuple(not held.isdisjoint(words) or any(part in folded for part in parts) for _, held, parts in _HELD)


_HINTS = Kept(lambda piece: any(_may_match(piece)))


def _folded(text: str) -> str:
    # What ignoring case takes for i and s beside their capitals.
    return text.lower().replace("i\u0307", "i").replace("ı", "i").replace("ſ", "s")


@lru_cache(maxsize=4096)
def declining_at(sentence: str) -> re.Match[str] | None:
    """Return where a sentence declines; kept, for several checks ask it of the same sentences."""
    return _phrases(_may_match(sentence)).search(sentence) if may_decline(sentence) else None


@cache
def _phrases(may_match: tuple[bool, ...]) -> re.Pattern[str]:
    """Return `DECLINES` without the phrases that cannot match: it takes a third of the time."""
    patterns = (pattern for (patterns, _, _), may in zip(_HELD, may_match, strict=True) if may for pattern in patterns)
    return re.compile("|".join(f"(?:{p})" for p in patterns) or r"(?!)", DECLINES.flags)


def expand(text: str) -> str:
    """Write English contractions out, so that each phrase needs one form only."""
    text = text.replace("’", "'")
    for short, full in _CONTRACTIONS:
        text = text.replace(short, full)
    return text


_READ_CHARS = 4_000
_ANSWER = 3
"""Content words before the refusal that are an answer, as a number is: what follows only says that there is no more."""
_MAX_BESIDE = 4
_MAX_REST = 12
"""Content words beside the refusal that still leave it a refusal (an apology, an offer to help otherwise)."""

_BUT = re.compile(
    r"\b(?:but|however|though|although|pero|mas|porém|aber|jedoch|mais|cependant)\b|但|不过|然而", re.IGNORECASE
)


class Refusal(PlainEvaluator):
    """Label `refused` where the response declines to answer, else `answered`; score 1 = answered, 0 = refused.

    1 is "answered" so that the mean over traffic is the answer rate and a rise of refusals shows as a fall. Whether a
    refusal was right depends on the contexts: read it beside retrieval quality. Known: English, Chinese, Spanish,
    Portuguese, German, French; other languages read as `answered`. Source: this project.
    """

    name = "refusal"
    needs = frozenset({"response"})
    immediate = True
    label = "3"
    constants = MappingProxyType({"patterns": DECLINES.pattern, "rest": _MAX_REST})

    def run(self, case: Case) -> Outcome:
        """Label one response; a response without words is a refusal."""
        response = case.response or ""
        if not any(c.isalnum() for c in response):
            return Outcome(score=0.0, label="refused", explanation="The response holds no words.")
        phrase = find_refusal(response)
        if phrase:
            return Outcome(score=0.0, label="refused", explanation=f"It declines: “{phrase}”.")
        return Outcome(
            score=1.0, label="answered", explanation="No phrase that declines to answer decides the response."
        )


@lru_cache(maxsize=4096)
def find_refusal(response: str) -> str | None:
    """Return the phrase by which a response declines to answer as a whole; None where it (also) answers.

    A response that declines in one sentence and goes on to tell more than a dozen content words is an answer. What was
    found is kept: a collector asks before it decides, and then for each check.
    """
    phrase, rest = None, 0
    response = response[:_READ_CHARS]
    if not may_decline(expand(response)):
        return None
    texts = [expand(sentence.text) for sentence in split_sentences(read_markup(response).text)]
    declining = list(map(declining_at, texts))
    if not any(declining):
        return None
    for text, match in zip(texts, declining, strict=True):
        if match:
            phrase = phrase or match.group().strip()
            rest += _content_after_but(text[match.end() :])
        elif not (OFFERS.search(text) or claims_nothing(text)):
            rest += content_size(text)
            if not phrase and (rest >= _ANSWER or any(map(str.isdigit, text))):
                return None
    return phrase if phrase and rest <= _MAX_REST else None


def speaks_of_sources(text: str) -> bool:
    """Tell whether a sentence only says that something is not in the sources: it claims nothing that they could say."""
    text = expand(text)
    match = declining_at(text)
    return (
        match is not None
        and not any(map(str.isdigit, text))
        and content_size(text[: match.start()]) + _content_after_but(text[match.end() :]) <= _MAX_BESIDE
    )


def _content_after_but(tail: str) -> int:
    match = _BUT.search(tail)
    return content_size(tail[match.end() :]) * 2 if match else 0


ENTRIES = (
    Entry.of(
        Refusal,
        source="this project",
        description="Answered: 1 where the response answers, 0 where it declines.",
        former={
            "2": "since version 3 marks, lead-ins and announcements are left out before the response is read, and"
            " “unable to answer from these passages” declines"
        },
    ),
)
