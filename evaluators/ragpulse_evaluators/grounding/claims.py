"""Which sentences of a response claim something, and which words only lead into what is claimed.

Greetings, offers of help, thanks and lines that announce a list claim nothing; "Based on the documents," before a
claim belongs to no claim. One tuple of patterns for each language; numbers make every sentence a claim.
"""

import re

__all__ = ["CLAIMS_NOTHING", "LEAD_IN", "blank_lead_in", "claims_nothing"]

_EN = (
    r"(?:is|was) there any(?:thing|one|where)\b.*\?",
    r"(?:please |just |and )?(?:let (?:me|us) know|feel free|do not hesitate|don't hesitate|reach out)\b.*",
    r"(?:i |we )?(?:really |sincerely )?hope (?:this|that|it|these|the|you|i)\b.*",
    r"(?:would you (?:like|prefer)|do you (?:want|need|have)|are you (?:looking|interested))\b.*\?",
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
    r"let (?:me|us|'s) (?:explain|help|walk|break|check|summari[sz]e|see|show|look|take|go|start|clarify)\b.*",
    r"(?:best|kind|warm) regards\b.*|sincerely\b.*|cheers\b.*|(?:here|below)(?:'s| is| are)\b[^.]*",
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
CLAIMS_NOTHING = re.compile(
    r"\W*(?:" + "|".join((*_EN, *_ZH, *_ES, *_PT, *_DE, *_FR)) + r")\W*", re.IGNORECASE | re.DOTALL
)
_MAX_CHARS = 250
_MAX_ANNOUNCED = 120
_ANNOUNCES = re.compile(r"[:：]\W*")
_DIGIT = re.compile(r"\d")
_COUNTED = re.compile(r"\b\d{1,2} (?:\w+ )?(?:steps?|ways?|things|options|points|reasons|items|parts)\b", re.IGNORECASE)
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
LEAD_IN = re.compile(
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
    if len(text) > _MAX_CHARS or _DIGIT.search(_COUNTED.sub("", text)):
        return False
    text = text.replace("’", "'")
    announces = len(text) <= _MAX_ANNOUNCED and _ANNOUNCES.fullmatch(text, text.rfind(":") if ":" in text else 0)
    if (announces or text.rstrip().endswith("：")) and not _NEGATED.search(text):
        return True
    return CLAIMS_NOTHING.fullmatch(text.strip()) is not None


def blank_lead_in(text: str) -> str:
    """Replace words that only lead into a claim ("Based on the documents, ") by spaces."""
    match = LEAD_IN.match(text)
    return " " * match.end() + text[match.end() :] if match and match.end() else text
