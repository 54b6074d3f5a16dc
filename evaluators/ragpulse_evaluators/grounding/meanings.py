"""What words mean to one another: opposites, synonyms, how many and how often, bounds, words that deny.

`LEXICON_ID` stands for all lists of words, these and those of `lexicon`: they change scores, so it is part of the
evaluators' versions.
"""

import hashlib
from itertools import product

from ragpulse_evaluators.grounding.lexicon import (
    ABBREVIATIONS,
    ALIASES,
    FUNCTION_WORDS,
    LIGHT_WORDS,
    LINK_WORDS,
    MAGNITUDES,
    MONTHS,
    NEGATIONS,
    NUMBER_WORDS,
    OPENERS,
    ORDINALS,
    PRONOUNS,
    SELF_WORDS,
    UNIT_SCALES,
    UNITS,
    UNSPACED_WORDS,
)

__all__ = ["BOUNDS", "BOUNDS_AFTER", "DENIALS", "LEXICON_ID", "OPPOSITES", "QUANTIFIERS", "SYNONYMS"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPPOSITE_PAIRS = (
    "before:after prior:after first:last previous:next increase:decrease|reduce|lower|fall|decline|drop|shrink "
    "rises|climbs:falls|drops|declines|decreases rise|grow|raise|climb:fall|decrease|decline|drop|shrink|reduce|lower "
    "rose|grew|climbed:fell|declined|dropped|shrank|decreased "
    "growth:decline gain:loss more:less|fewer most:least majority:minority higher:lower highest:lowest "
    "largest|biggest|greatest:smallest larger|bigger|greater:smaller big|large|huge:small|tiny|little "
    "long:short|brief longer:shorter "
    "longest:shortest old:young|new older:younger|newer oldest:youngest|newest early:late earlier:later "
    "earliest:latest above|over:below|under|beneath "
    "exceed:below inside|indoor|indoors:outside|outdoor|outdoors north:south east:west northern:southern "
    "eastern:western "
    "northeast:southwest northwest:southeast left:right top:bottom front:rear|back male:female man:woman men:women "
    "boy:girl husband:wife father:mother "
    "brother:sister son:daughter win|won|beat|defeated:lose|lost always:never "
    " "
    "legal:illegal|unlawful allow|permit:forbid|prohibit|prevent|ban|deny "
    "allowed|permitted:forbidden|prohibited|banned|denied "
    "enable|activate:disable|deactivate enabled|activated:disabled|deactivated enables:disables "
    "true|correct:false|incorrect|wrong "
    "hot|warm:cold|cool hotter|warmer:colder|cooler start|begin|commence:end|finish|stop "
    "started|began|begun:ended|finished|stopped "
    "start|starts|begins:ends|stops open|opened|opens:close|closed|closes|shut public:private maximum|max:minimum|min "
    "maximal:minimal upper:lower positive:negative accept|approve:reject|refuse|decline|deny "
    "accepted|approved:rejected|refused|declined|denied "
    "accepts|approves:rejects|refuses include|contain:exclude included|contained:excluded "
    "includes|including:excludes|excluding "
    "safe|harmless:dangerous|unsafe|harmful|risky|hazardous safer:riskier major:minor black:white light:heavy|dark "
    "lighter:heavier|darker bright:dark "
    "import:export imports:exports buy|purchase|acquire:sell bought|purchased|acquired:sold "
    "mandatory|required|compulsory|obligatory|necessary:optional|voluntary|unnecessary "
    "free:paid|chargeable|expensive|costly cheap|cheaper|inexpensive:expensive|costlier|dearer fast|quick|rapid:slow "
    "faster|quicker:slower "
    "accelerate:slow strong:weak stronger:weaker strengthen:weaken rich|richer|wealthy:poor|poorer full:empty wet:dry "
    "best:worst better:worse good|excellent:bad|poor improve|improves|improved:worsen|worsens|worsened|deteriorate "
    "deteriorates "
    "create|created|add|added|build|built:delete|deleted|remove|removed|destroy "
    "erased|wiped:kept|stored|saved"
    " "
    "build|built|construct|constructed:destroy|destroyed|demolished|demolish "
    "founded|established:dissolved|closed arrive|arrived:depart|departed|left enter|entered:leave|exit|exited "
    "success|succeed|succeeded|successful:failure|fail|failed|unsuccessful profit:loss income:expense credit:debit "
    "support|supported|endorse|endorsed:oppose|opposed common|frequent:rare|uncommon|infrequent|scarce "
    "temporary:permanent "
    "manual|manually:automatic|automatically synchronous|sync:asynchronous|async internal:external input:output "
    "upload:download "
    "encrypt|encrypted:decrypt|decrypted|plaintext lock|locked:unlock|unlocked install:uninstall "
    "connect|connected:disconnect|disconnected "
    "upgrade|upgraded:downgrade|downgraded "
    "increase|increases|raises|grows:reduces|decreases|lowers|falls|shrinks|declines "
    "increased|raised:reduced|decreased|lowered hard|difficult:easy|simple soft:hard deep:shallow deeper:shallower "
    "wide|broad:narrow wider:narrower thick:thin thicker:thinner high|tall:low high:short taller:shorter "
    "loud:quiet|silent "
    "day:night morning:evening summer:winter spring:autumn|fall sunrise:sunset ancestor:descendant "
    "predecessor:successor "
    "present:absent guilty:innocent healthy:sick|ill|unhealthy alive|living:dead born:died urban:rural "
    "domestic:foreign local:remote "
    "possible:impossible complete:incomplete correct:incorrect valid:invalid active:inactive sufficient:insufficient "
    "direct:indirect dependent:independent visible:invisible relevant:irrelevant legal:illegal regular:irregular "
    "agree:disagree connected:disconnected approved:disapproved appear:disappear advantage:disadvantage "
    "formal:informal proper:improper plural:singular odd:even horizontal:vertical liquid:solid "
    "active:inactive|passive recommended:deprecated|discouraged "
    "keep|kept|retain|retained|store|stored:discard|discarded|delete|deleted|throw remember:forget victory:defeat "
    "war:peace love|like|admire|admired:hate|dislike|despise|despised "
    "need|needs|require|requires|has|have:lack|lacks accept:decline agree|agreed:disagree|disagreed "
    "complete:incomplete|partial reusable|washable:disposable repaired|repair|fixed:broken|damaged spared:destroyed "
    "useful:useless sweet:bitter|sour lengthen|lengthens|extend|extends:shorten|shortens "
    "extended|lengthened:shortened heat|heated:cool|cooled lend|lent:borrow|borrowed "
    "employer:employee landlord:tenant seller:buyer sender:recipient|receiver parent:child teacher:student "
    "credits:debits "
    "增加:减少 增长:下降 提高:降低 上升:下降 升高:降低 上涨:下跌 以前:以后 之前:之后 以上:以下 高于:低于 多于:少于 "
    "大于:小于 早于:晚于 最大:最小 最高:最低 "
    "最多:最少 最长:最短 最早:最晚 允许:禁止 可以:禁止 支持:反对 接受:拒绝 批准:拒绝 成功:失败 胜利:失败 战胜:败给 "
    "开始:结束 打开:关闭 开启:关闭 启用:禁用 "
    "公开:保密 免费:收费 安全:危险 有效:无效 合法:非法 必须:可选 必需:可选 同步:异步 内部:外部 进口:出口 买入:卖出 "
    "购买:出售 男性:女性 上午:下午 "
    "北部:南部 东部:西部 北方:南方 东方:西方 扩大:缩小 延长:缩短 加快:减慢 加强:削弱 优点:缺点 盈利:亏损 收入:支出 "
    "手动:自动 "
    "所有:部分 全部:部分 总是:从不 经常:很少 大多数:少数 "
    "aumenta|aumentó|sube:disminuye|disminuyó|baja antes:después|depois mayor|mais:menor|menos "
    "abierto|aberto:cerrado|fechado "
    "gratis|gratuito:pago permitido:prohibido|proibido primero|primeiro:último más:menos siempre|sempre:nunca "
    "vor:nach steigt|stieg:sinkt|sank|fällt|fiel erlaubt:verboten geöffnet|offen:geschlossen "
    "kostenlos:kostenpflichtig immer:nie größer:kleiner "
    "höher:niedriger|tiefer schneller:langsamer älter:jünger erste:letzte avant:après ouvert:fermé gratuit:payant "
    "autorisé:interdit toujours:jamais plus:moins"
)
OPPOSITES: dict[str, frozenset[str]] = {}
for _pair in _OPPOSITE_PAIRS.split():
    _ones, _, _others = _pair.partition(":")
    for _one, _other in product(_ones.split("|"), _others.split("|")):
        OPPOSITES[_one] = OPPOSITES.get(_one, frozenset()) | {_other}
        OPPOSITES[_other] = OPPOSITES.get(_other, frozenset()) | {_one}
OPPOSITES.pop("", None)

_QUANTIFIER_ROWS = {
    "all": "all every each everyone everything always whole entire 所有 全部 每 总是 todos todas todo sempre siempre "
    "alle jeder jede "
    "jedes immer tous toutes toujours",
    "most": "most majority mostly mainly usually normally typically generally predominantly largely primarily many "
    "numerous lots often frequently 大多数 大部分 通常 许多 很多 经常 mayoría maioria meisten plupart muchos muitas "
    "muitos viele "
    "beaucoup oft",
    "some": "some certain sometimes occasionally 一些 部分 有时 algunos alguns einige manche quelques parfois",
    "few": "few rarely seldom hardly scarcely minority 少数 很少 pocos poucos wenige selten peu rarement",
}
QUANTIFIERS = {word: group for group, row in _QUANTIFIER_ROWS.items() for word in row.split()}
"""How many or how often, in four groups."""

BOUNDS = {
    phrase.replace("_", " "): bound
    for bound, row in {
        "least": "at_least over above after exceeding minimum minimum_of since from_age more_than longer_than "
        "higher_than greater_than "
        "older_than heavier_than larger_than bigger_than later_than taller_than warmer_than hotter_than mindestens "
        "über mehr_als "
        "más_de mais_de plus_de 超过 至少",
        "most": "at_most up_to within under below before until maximum maximum_of less_than fewer_than shorter_than "
        "lower_than "
        "smaller_than younger_than lighter_than earlier_than colder_than cooler_than höchstens unter weniger_als "
        "menos_de moins_de "
        "不超过 最多 至多",
    }.items()
    for phrase in row.split()
}
"""Words right before a number that make it the least or the most."""

BOUNDS_AFTER = {
    ("the", "latest"): "most",
    ("at", "most"): "most",
    ("or", "less"): "most",
    ("or", "fewer"): "most",
    ("or", "younger"): "most",
    ("the", "earliest"): "least",
    ("at", "least"): "least",
    ("or", "more"): "least",
    ("or", "longer"): "least",
    ("or", "older"): "least",
}
"""Words soon after a number that make it the least or the most."""

DENIALS = _words(
    "free closed closes close forbidden forbid prohibited prohibit refuse refused refuses reject rejected deny "
    "denied exclude excluded lack lacks lacked fail fails failed failure except unless avoid avoids prevent prevents "
    "stop stops stopped lost lose loses empty absent missing impossible banned rare rarely seldom hardly useless "
    "only few little instead optional rather less fewer against prior before until out any other limited maximum "
    "largest highest longest solely exclusively reserved either otherwise merely just alone purely exempt discouraged"
    " discourages waived"
)
"""Words that deny something without a negation, and words whose sentence may be retold with a negation."""

_SYNONYM_ROWS = (
    "big large huge|biggest largest|small little tiny|begin began begun start commence originate|end finish conclude|"
    "make made create produce build built develop|buy bought purchase|use utilize|call name term|know knew known|"
    "kid child children|movie film|show series program programme|job occupation|lawyer attorney|doctor physician|"
    "move relocate|increase rise rose risen grow grew grown growth|enhance improve|decrease decline fall fell reduce|"
    "vary range|release publish issue|goal target aim|sort kind type form|amount quantity|help assist aid|"
    "get got obtain receive acquire|earn gain|give gave given provide offer supply|demonstrate display show|"
    "say said state claim|tell told|though although|roughly approximately about around|often frequently|"
    "usually commonly typically|mostly mainly primarily chiefly predominantly largely|fast quick rapid|"
    "well-known famous renowned|city town|country nation|globe world|area region zone|car automobile|"
    "place location site|company firm business corporation|people person human individual|"
    "important significant essential|various different diverse|ancient old|launch start|"
    "contain include comprise consist|allow permit let enable|need require|hard difficult|easy simple|happen occur|"
    "additionally also|author writer|photo picture image|photos pictures images|shop store|meal dish|"
    "teach taught instruct|speak spoke spoken talk|live reside|die died dead death|choose chose chosen select pick|"
    "change alter modify|complete finish|many several numerous|extreme intense|sport game|match game|major main|"
    "see saw seen|write wrote written|sell sold|win won|go went gone|come came|take took taken|become became|"
    "find found|think thought|hold held|lead led|keep kept|leave left|lose lost|pay paid|meet met|run ran|"
    "bring brought|break broke broken|drive drove driven|eat ate eaten|draw drew drawn|sing sang sung|swim swam|"
    "throw threw thrown|wear wore worn|spend spent|send sent|stand stood|feel felt|hear heard|man men|woman women|"
    "foot feet|wolf wolves|"
    "close closed shut|stop stopped cease|delete erase remove wipe clear|fail crash|split divide distribute|"
    "cost charge price fee toll|hire rent|ship deliver|parcel package order|ill sick|return back|dead deceased|"
    "freeze frozen froze|bike bicycle|lorry truck|plane aircraft airplane|firm solid|photo photography|"
    "quick quickly fast rapidly|forbid forbidden ban banned prohibit prohibited|permit permitted allow allowed|"
    "limit maximum|worker employee staff|client customer user consumer|money cash refund|insure insured cover covered|"
    "medicine drug medication|severe serious|rare rarely hardly seldom|usual usually normal normally|twice two|"
    "near close|construct construction built building|finance financed money fund|compensation refund|last lasted|"
    "disable disabled off|exist available|holiday leave vacation|certificate document paper|internet online|boat ship|"
    "portion part share|bulk most majority|inhabitant resident people|complain complaint|arrive arrival|"
    "depart departure leave|prefer like liked|purchase buy bought|require required must necessary mandatory|able can"
)
SYNONYMS: tuple[tuple[str, ...], ...] = tuple(tuple(row.split()) for row in _SYNONYM_ROWS.split("|"))
"""Words that may stand for one another, irregular forms among them."""


def _identity(*lists: object) -> str:
    texts = [repr(sorted(entries) if isinstance(entries, frozenset) else entries) for entries in lists]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


LEXICON_ID = _identity(
    ABBREVIATIONS,
    NEGATIONS,
    SELF_WORDS,
    FUNCTION_WORDS,
    NUMBER_WORDS,
    ORDINALS,
    MAGNITUDES,
    MONTHS,
    UNITS,
    UNIT_SCALES,
    _OPPOSITE_PAIRS,
    _QUANTIFIER_ROWS,
    PRONOUNS,
    DENIALS,
    BOUNDS,
    BOUNDS_AFTER,
    UNSPACED_WORDS,
    ALIASES,
    OPENERS,
    LINK_WORDS,
    LIGHT_WORDS,
    _SYNONYM_ROWS,
)
"""12 hex over all lists: a changed word breaks the series, as a changed prompt would."""
