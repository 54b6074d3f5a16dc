"""What of a response claims nothing: markdown, code in fences, citation marks, lists of sources, greetings and offers.

`read_markup` blanks it out character by character, so that places in what is left are places in the response.
`find_marks` reads the marks that name a context: `[1]`, `[2,3]`, `[1-3]`, `[^1]`, `【1】`, `(doc 2)`, an id.
No parser of markdown gives the places of inline text, which is why the few constructs that matter are read here.
Greetings, offers of help, thanks and lines that announce a list are no claims; "Based on the documents," before a claim
belongs to none. One tuple of patterns for each language; numbers make every sentence a claim.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_MARK = re.compile(r"\[([^\[\]\n]{1,80})\](?!\()|【([^【】\n]{1,80})】|\(([^()\n]{1,80})\)")
_NUMBERS = re.compile(
    r"\^?(?:(?:doc(?:ument)?|source|context|passage|ref|chunk|文档|来源|資料|资料|quelle|fuente|fonte)s?\.?\s*#?:?\s*)?"
    r"(\d{1,3}(?:\s*(?:[-–,;、，]|and|&)\s*\^?\d{1,3})*)(?:†[^\]】]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:doc(?:ument)?|source|context|id|ref)s?\.?\s*[:#]\s*", re.IGNORECASE)
_SOURCE = re.compile(
    r"(?:sources?|refs?\.?|references?|citations?|see|siehe|quellen?|fuentes?|fontes?|voir|来源|來源|出处|参见)"
    r"\s*[:：].*|\^[\w-]+|\w*[A-Za-z_][\w./:#-]*\d[\w./:#-]*",
    re.IGNORECASE,
)
"""What a bracket holds where it names a source that need not be a context: "source: ...", a footnote, an id."""
_MAX_RANGE = 50
MAX_MARKS = 100
"""More marks than this are left unread, which bounds the work."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SOURCES = re.compile(
    r"^\W*(?:sources?|references?|citations?|quellen?|fuentes?|fontes?|参考文献|参考资料|来源)\W*[:：][^\n]*"
    r"(?:\n[ \t]*(?:[-*+•]|\d{1,3}[.)]|\[)[^\n]*)*|^[ \t]*\[\^[^\]\n]{1,40}\]:[^\n]*",
    re.MULTILINE | re.IGNORECASE,
)
_TABLE_HEAD = re.compile(r"^[^\n]*\|[^\n]*\n[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t:|-]*)?$", re.MULTILINE)
_LINES = re.compile(
    r"^(?:[ \t]*#{1,6}[ \t][^\n]*$"  # a heading
    r"|[ \t]*(?:\*\*|__)[^*_\n]{1,120}(?:\*\*|__)[ \t]*:?[ \t]*$"  # a line in bold letters
    r"|[^\n]+\n=+[ \t]*$"
    r"|[ \t]*\|[ \t]*\d{1,3}[ \t]*\|"  # the number of a row
    r"|[ \t]*(?:>[ \t]?)*[ \t]*(?:(?:[-*+•–]|\(?(?:\d{1,3}|[a-z])[.)])[ \t]+(?:\[[ xX]\][ \t])?)?"
    r"(?:(?:\*\*)?(?i:step|schritt|paso|passo|étape) \d{1,2}(?:\*\*)?[:.)](?:\*\*)?)?)"
    r"|第[\d一二三四五六七八九十]{1,2}步[:：,，]"
    r"|<(?:https?://[^>\s]*|sup>[^<\n]{1,20}</sup|/?[a-zA-Z][^>\n]{0,80})>|!\[[^\]\n]*\]\([^)\n]*\)",
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\(([^()\s]*)[^()\n]*\)(?=([\s)\]]*(?:[.,;!?]|$)))?", re.MULTILINE)
_NOISE = re.compile(
    r"[h*_~¹²³⁴-⁹⁰](?:(?<=h)ttps?://[^\s)\]>]*|(?<=\*)\**|(?<=_)_+|(?<=~)~"
    r"|(?:(?<=[^\W\d_]{3}[¹²³⁴-⁹⁰])|(?<=[.!?,;)][¹²³⁴-⁹⁰]))[¹²³⁴-⁹⁰]*)"
)
"""Addresses, emphasis, raised numbers of footnotes. One set of characters begins them: the engine scans for it fast."""


class Mark(NamedTuple):
    """One mark in a response: its place, its text, and the ids or numbers it names."""

    start: int
    end: int
    text: str
    targets: tuple[str, ...]


class Code(NamedTuple):
    """One fenced block of code: its text and its place in the response."""

    text: str
    start: int
    end: int


class Reading(NamedTuple):
    """A response with everything blank that is no sentence, as long as the response, and its code."""

    text: str
    code: tuple[Code, ...]


def read_markup(response: str, ids: Sequence[str | None] = ()) -> Reading:
    """Blank structure, code and citation marks; `ids` are those of the contexts."""
    return _read(response, frozenset(filter(None, ids)))


@lru_cache(maxsize=4)
def _read(response: str, known: frozenset[str]) -> Reading:
    """Read it; kept for the next check of the same case."""
    code = tuple(Code(m.group(2), m.start(2), m.end(2)) for m in _FENCE.finditer(response) if m.group(2).strip())
    text = _FENCE.sub(_blank, response) if code else response
    for pattern in (_SOURCES, _TABLE_HEAD, _LINES):
        text = pattern.sub(_blank, text)
    text = _LINK.sub(lambda match: _link(match, known), text)
    text = _MARK.sub(lambda match: _blank(match) if _cites(match, known) else match.group(), text)
    return Reading(_NOISE.sub(_blank, text).replace("|", " "), code)


def _blank(match: re.Match[str]) -> str:
    """Spaces of the same length; line breaks stay."""
    return re.sub(r"[^\n]", " ", match.group())


def _link(match: re.Match[str], known: frozenset[str]) -> str:
    """Keep the words of a link, unless it cites: its words are an id, or it names a context at the end of a text."""
    words, target = match.group(1), match.group(2)
    names_context = any(i in (words, target) or target.endswith(("/" + i, "#" + i)) for i in known)
    cites = words in known or _NUMBERS.fullmatch(words) or _SOURCE.fullmatch(words) or words == target
    if cites or (names_context and match.group(3) is not None):
        return " " * len(match.group())
    return " " + words + " " * (len(match.group()) - len(words) - 1)


def _cites(match: re.Match[str], known: frozenset[str]) -> bool:
    if _targets(match, known):
        return True
    labelled = _SOURCE.fullmatch(_inside(match))
    return bool(labelled) and (match[3] is None or ":" in match[3] or "：" in match[3])


def _inside(match: re.Match[str]) -> str:
    """What stands in the brackets; those of the third group are round."""
    return next(g for g in match.groups() if g is not None).strip()


def find_marks(response: str, ids: Sequence[str | None] = ()) -> list[Mark]:
    """Find citation marks; a bracket that is neither numbers nor a known id is ordinary text."""
    known = frozenset(filter(None, ids))
    marks: list[Mark] = []
    for match in _MARK.finditer(response):
        targets = _targets(match, known)
        if targets and len(marks) < MAX_MARKS:
            marks.append(Mark(match.start(), match.end(), match.group(), targets))
    return marks


def _targets(mark: re.Match[str], known: frozenset[str]) -> tuple[str, ...]:
    inner = _inside(mark)
    pieces = [_LABEL.sub("", p.strip()) for p in re.split(r"[,;，；]\s*", inner)]
    if any(p in known for p in pieces):
        return tuple(p for p in pieces if p)
    match = _NUMBERS.fullmatch(inner)
    if not match or (mark[3] is not None and inner[0].isdigit()):
        return ()
    return tuple(dict.fromkeys(_expand(match.group(1))))


def _expand(numbers: str) -> Iterator[str]:
    for piece in re.split(r"\s*(?:[,;、，]|and|&)\s*", numbers.replace("^", "")):
        first, dash, last = re.sub(r"\s*[-–]\s*", "-", piece).partition("-")
        if not dash:
            yield str(int(first))
            continue
        for n in range(int(first), min(int(last.partition("-")[0]), int(first) + _MAX_RANGE) + 1):
            yield str(n)


_EN = (
    r"(?:is|was) there any(?:thing|one|where)\b.*\?",
    r"(?:please |just |and )?(?:let (?:me|us) know|feel free|do not hesitate|don't hesitate|reach out)\b.*",
    r"(?:i |we )?(?:really |sincerely )?hope (?:this|that|it|these|the|you|i)\b.*",
    r"(?:would you (?:like|prefer)|do you (?:want|need) (?:me|us|to|help|more|further|any(?:thing)?)"
    r"|do you have (?:any )?(?:more|other|further|additional|specific|questions?)"
    r"|are you (?:looking|interested))\b.*\?",
    r"(?:shall|should|can|may|could|how can|what can|how may|how else can|what else can) (?:i|we)\b.*\?",
    r"(?:does|did|is) (?:this|that|it)\b.{0,20}\b(?:help|answer|make sense|clear|clarify|work)\b.*\?",
    r"(?:if|should) you (?:ever )?(?:have|need|want|would like|'d like|run into|require|get stuck)\b.*"
    r"\b(?:ask|contact (?:us|me|our|the)|reach out|let (?:me|us) know|feel free|happy to|glad to|here to|just say)\b.*",
    r"(?:(?:i'm|i am|i'd be|i would be|we're|we are|i'll be|always) )*(?:always )?(?:happy|glad|here|ready) "
    r"(?:to (?:help|assist|answer|explain|provide)|if you)\b.*|happy to help\b.*",
    r"(?:many )?(?:thanks|thank you)\b.*|you(?:'re| are) (?:very |most )?welcome\b.*|my pleasure\b.{0,20}"
    r"|no problem.{0,3}",
    r"(?:that's |what |that is )?(?:an? )?(?:really |very )?(?:great|good|excellent|nice|interesting) question\b.*",
    r"(?:hi|hello|hey|dear|welcome|greetings|good (?:morning|day|evening|afternoon))(?: [\w']+){0,3}",
    r"(?:have|enjoy) (?:a|an|your) (?:very )?(?:\w+ )?(?:day|evening|weekend|time|one|stay|trip)\b.*"
    r"|good luck\b.{0,40}|take care",
    r"(?:sure|certainly|of course|absolutely|ok|okay|alright|got it|understood|indeed)(?: thing)?"
    r"(?:[,!.]? (?:i|we)(?:'d| would| can| will|'ll)\b.*|[,!.]? (?:happy|glad) to\b.*|[,!.]? (?:let|here)\b.*)?",
    r"(?:i|we) (?:can|could|will|would be (?:happy|glad) to|'d be (?:happy|glad) to) (?:certainly "
    r"|gladly )?(?:help|assist|explain)\b.*",
    r"let(?:'s| me| us) (?:explain|help|walk|break|check|summari[sz]e|see|show|look|take|go|start|clarify)\b.*",
    r"(?:best|kind|warm) regards\b.*|sincerely\b.*|cheers|(?:here|below)(?:'s| is| are)\b[^.]*",
    r"(?:please )?see (?:below|the (?:following|table|list)).*",
)
_ZH = (
    r"(?:请问)?(?:您|你)?还有(?:什么|其他|别的|任何).*",
    r"希望(?:这|以上|对你|对您|能|我的).*",
    r"(?:如果?|若|倘若)(?:您|你)?(?:还)?(?:有|需).*(?:问题|疑问|需要|帮助|告诉|联系).*",
    r"(?:很高兴|感谢|谢谢|不客气|祝您|祝你|请随时|欢迎随时).*|(?:您好|你好|好的|当然|没问题)(?:，?(?:我来|让我).*)?|.*如下",
)
_ES = (
    r"¿?(?:hay algo más|puedo ayudar|en qué|necesitas?|desea|deseas|quieres?|quiere)\b.*\?",
    r"espero (?:que|haber)\b.*|(?:no dud(?:es|e)|avísame|avíseme|hágame saber|házmelo saber)\b.*|de nada\b.*",
    r"si (?:tienes?|necesitas?|deseas?|tuviera)\b.*(?:pregunta|duda|ayuda|información).*",
    r"(?:muchas )?gracias\b.*|¡?hola\b.{0,20}|¡?claro\b.{0,20}|buen(?:os|as) (?:días|tardes|noches)\b.{0,20}",
)
_PT = (
    r"(?:há|tem|existe|posso|em que posso|gostaria|deseja|precisa)\b.*\?",
    r"espero (?:que|ter)\b.*|(?:fique à vontade|não hesite|me avise|avise-me)\b.*|de nada\b.*",
    r"(?:se|caso) (?:tiver|precisar|tenha|precise|quiser)\b.*(?:pergunta|dúvida|ajuda|informaç).*",
    r"(?:muito )?obrigad[oa]\b.*|olá\b.{0,20}|claro\b.{0,20}|bo(?:m|a) (?:dia|tarde|noite)\b.{0,20}",
)
_DE = (
    r"(?:kann|darf|soll) ich\b.*\?|(?:gibt es|haben sie|hast du|möchten sie|möchtest du|brauchen sie"
    r"|brauchst du)\b.*\?",
    r"(?:ich hoffe|ich helfe|gern(?:e)? helfe ich|zögern sie nicht|melden sie sich|melde dich)\b.*",
    r"(?:lassen sie|lass) (?:es )?(?:mich|uns)\b.*wissen\b.*",
    r"(?:bei|wenn|falls|sollten|solltest)\b.*(?:fragen|hilfe|unterstützung)\b.*(?:gern|wenden|melde|verfügung|da)\b.*",
    r"(?:vielen dank|danke|gern geschehen|gerne?|hallo|guten (?:tag|morgen|abend)|natürlich"
    r"|selbstverständlich)\b.{0,40}",
)
_FR = (
    r"(?:y a-t-il|puis-je|avez-vous|souhaitez-vous|voulez-vous|est-ce que je (?:peux|puis)|comment puis-je)\b.*\?",
    r"(?:j'espère|n'hésite[zs]? pas|faites-le-moi savoir|dites-moi|dis-moi|je reste à)\b.*",
    r"si (?:vous|tu) (?:avez|as)\b.*(?:question|besoin|aide).*",
    r"merci\b.{0,40}|bonjour\b.{0,20}|bien sûr\b.{0,20}|avec plaisir\b.{0,20}|de rien\b.{0,20}",
)
_CLAIMS_NOTHING = re.compile(
    r"\W*(?:" + "|".join((*_EN, *_ZH, *_ES, *_PT, *_DE, *_FR)) + r")\W*", re.IGNORECASE | re.DOTALL
)
_MAX_CHARS = 250
_MAX_ANNOUNCED = 120
_ANNOUNCES = re.compile(r"[:：]\W*")
_DIGIT = re.compile(r"\d")
_COUNTED = re.compile(
    r"\b\d{1,3} (?:\w+ )?(?:steps?|ways?|things|options|points|reasons|items|parts|words|sentences)\b", re.IGNORECASE
)
_ANNOUNCED = re.compile(r"\W*(?:here|below|the following)(?:'s| is| are)\b.*[:：]\W*", re.IGNORECASE | re.DOTALL)
"""What announces in so many words may hold a number: "Here are the steps for Windows 10:"."""
_NEGATED = re.compile(
    r"\b(?:not|no|never|cannot|without|only|nicht|kein\w*|nunca|não|jamais|pas)\b|n't\b|[不没無无]", re.I
)

_HOLDERS = (
    r"(?:contexts?|documents?|documentation|docs|sources?|passages?|texts?|information|articles?|excerpts?|results?"
    r"|search results|knowledge base|data|materials?|content|manual|guide|handbook|faq|page|website)"
)
_WHICH = (
    r"(?:the |this |these |your |our |my |what )?(?:(?:provided|given|available|retrieved|above|relevant|official) )*"
)
_LEAD_IN = re.compile(
    r"\W*(?:(?:additionally|also|furthermore|moreover|in addition|finally|lastly"
    r"|overall|in short|in summary|to summari[sz]e|in conclusion|to sum up|in other words|specifically|for example"
    r"|for instance|in general|first of all|(?:please )?note that|keep in mind that|to answer your question"
    r"|as requested)[,:]? )?"
    rf"(?:(?:based on|according to|as per|per|from|going by|as (?:stated|mentioned|described|noted|shown|outlined"
    rf"|explained)"
    rf"(?: in| by)?) {_WHICH}{_HOLDERS}(?: (?:provided|given|above|available|here|you (?:provided|shared)"
    rf"|i (?:have|found)))*"
    rf",? (?:that )?|{_WHICH}{_HOLDERS} (?:clearly )?(?:says?|states?|mentions?|notes?|indicates?|explains?|shows?"
    rf"|confirms?) that "
    r"|it (?:says|states|is (?:stated|mentioned|noted)) that )?"
    r"|\W*(?:根据|依据|按照)(?:提供的|所提供的|以上|上述|给定的)*(?:上下文|文档|资料|信息|文章|内容)(?:可知|显示|，|,)*"
    r"|\W*(?:综上所述|总之|总的来说|此外|另外|因此)[，,]"
    r"|\W*(?:laut|gemäß|basierend auf|nach) (?:den |der |dem )?(?:bereitgestellten |vorliegenden )?"
    r"(?:dokument\w*|dokumentation|kontext|quellen?|unterlagen|informationen),? "
    r"|\W*(?:según|de acuerdo con|con base en) (?:el |la |los |las )?(?:contexto|documentación|documentos?|información"
    r"|fuentes?)(?: proporcionad\w+)?,? "
    r"|\W*(?:de acordo com|segundo|com base) (?:n?[oa]s? )?(?:contexto|documentação|documentos?|informaç\w+|fontes?)"
    r"(?: fornecid\w+)?,? "
    r"|\W*(?:selon|d'après) (?:les? |la )?(?:contexte|documents?|documentation|sources?"
    r"|informations?)(?: fournie?s?)?,? ",
    re.IGNORECASE,
)


def claims_nothing(text: str) -> bool:
    """Tell whether a sentence greets, thanks, offers help or announces what follows; a number makes it a claim."""
    text = text.replace("’", "'")
    if len(text) <= _MAX_ANNOUNCED and _ANNOUNCED.fullmatch(blank_lead_in(text)):
        return True
    if len(text) > _MAX_CHARS or _DIGIT.search(_COUNTED.sub("", text)):
        return False
    announces = len(text) <= _MAX_ANNOUNCED and _ANNOUNCES.fullmatch(text, text.rfind(":") if ":" in text else 0)
    if (announces or text.rstrip().endswith("：")) and not _NEGATED.search(text):
        return True
    return _CLAIMS_NOTHING.fullmatch(text.strip()) is not None


def blank_lead_in(text: str) -> str:
    """Replace words that only lead into a claim ("Based on the documents, ") by spaces."""
    match = _LEAD_IN.match(text)
    return " " * match.end() + text[match.end() :] if match and match.end() else text
