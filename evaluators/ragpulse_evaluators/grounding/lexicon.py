"""Small closed word lists the offline checks share: function words, negations, number words, months, opposites.

The lists are unions over languages on purpose: an answer may mix languages, and a guess at the language would be one
more thing to be wrong about.
"""

import hashlib
import json
from itertools import combinations, product

__all__ = [
    "ABBREVIATIONS",
    "APPROXIMATIONS",
    "FUNCTION_WORDS",
    "MAGNITUDES",
    "MONTHS",
    "NEGATIONS",
    "NUMBER_WORDS",
    "OPERATIONS",
    "OPPOSITES",
    "SELF_WORDS",
    "UNITS",
    "UNIT_SCALES",
    "UNSPACED_WORDS",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS = _words(
    "mr mrs ms dr prof sr sra jr st no nos vs etc e.g i.e cf fig figs approx inc ltd co corp dept est vol ca c al art "
    "p pp ed eds z.b bzw usw ca. ex sgt lt col gen rev hon m mm mme mlle núm pág av"
)

NEGATIONS = _words(
    "not no never n't nt cannot cant can't neither nor none nobody nothing without don't doesn't didn't isn't "
    "aren't wasn't weren't won't wouldn't can't couldn't shouldn't hasn't haven't hadn't ain't mustn't unable "
    "nunca jamás jamas ningún ninguno ninguna nada tampoco sin não nao nem nenhum nenhuma sem jamais "
    "nicht kein keine keinen keiner keinem keines nie niemals ohne weder pas aucun aucune sans jamais rien ni "
    "не нет никогда без לא אין ללא לם لا لم لن ليس ليست غير بدون 不 没 沒 无 無 未 非 否 别 ない ません नहीं नहीं "
    "なかった ませんでした ではない ではありません じゃない ず 안 못"
)

SELF_WORDS = _words(
    "i me my mine myself we us our ours i'm i've i'll i'd we're we've im ive "
    "yo mi mí nosotros eu meu minha nós ich mein meine wir je j'ai mon ma mes nous 我 我们 я мой мы"
)


_ENGLISH = _words(
    "you your yours you're you've you'll "
    "th nd rd a an the this that these those there here it its he him his she her hers they them their theirs who "
    "whom whose "
    "which what when where why how and or but so if then than as at by for from in into of off on onto out over to up "
    "with about between is are was were be been being am do does did done doing has have had having will would can "
    "could shall should may might must also too just very really quite some any each every both either such same own "
    "well yes yeah yea oh ok okay like it's that's he's she's there's they're they've they'll they'd he'll he'd she'll "
    "she'd it'll it'd who's what's let's lets 're 've 'll 'd 's 'm "
    "however therefore thus because while during through since until against among per via re ve ll s t d m don didn "
    "doesn isn wasn actually definitely certainly mainly usually basically interestingly generally finally "
    "lastly secondly thirdly"
)
_ROMANCE = _words(
    "el la los las un una unos unas lo al del de que y o e en con por para se su sus es son fue era ser está están "
    "como más pero ya le les este esta estos estas ese esa si sí ha han muy también entre cuando hay "
    "os as um uma uns umas do da dos das no na nos nas ao aos à às em com por pelo pela seu sua seus suas é são foi "
    "eram ser está estão mais mas já lhe isso isto esse essa também ou ele ela eles elas "
    "le la les un une des du de et ou où en au aux avec par pour sur dans ce cet cette ces il elle ils elles est sont "
    "était été être a ont avait qui que quoi dont se sa son ses leur leurs plus mais aussi ne y l d qu c n s j"
)
_GERMAN = _words(
    "der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren sein wird werden wurde "
    "wurden hat haben hatte im in am an auf aus bei mit nach von vom zu zum zur für über unter durch um als wie auch "
    "noch nur er sie es ihr ihre ihren sich dass daß so wenn da dort hier dieser diese dieses man kann"
)
_OTHERS = _words(
    "и в во на с со к по о об от до за из у а но же что это как он она они его её их был была было были есть для или "
    "في من على إلى عن و أو أن إن هذا هذه ذلك التي الذي هو هي كان كانت ما مع של את על עם זה זו הוא היא הם היה היתה "
    "או גם כי אם 的 了 是 在 和 与 及 也 就 都 而 或 被 把 为 于 之 其 这 那 它 他 她 们 有 个 着 吗 呢 吧 啊 "
    "は が を に の で と も へ や か ね よ だ た て し い る れ さ す ま では じゃ です ます ました でした である "
    "という から まで より など "
    "について によって において として ている ています した する します される されます され こと もの "
    "은 는 이 가 을 를 의 에 에서 와 과 도 로 으로"
)
FUNCTION_WORDS = _ENGLISH | SELF_WORDS | _ROMANCE | _GERMAN | _OTHERS

UNSPACED_WORDS = _words(
    "不断 不同 不仅 不但 不过 不久 不错 不少 不得不 不管 不论 不只 不止 不安 不锈钢 不动产 不禁 不由 不妨 不料 "
    "差不多 对不起 了不起 不可或缺 "
    "不可避免 必不可少 出没 淹没 沉没 没收 无论 无线 无疑 无人机 无限 无花果 无锡 无比 无数 无产 无非 无聊 未来 未婚 "
    "非常 非洲 非得 是非 除非 南非 "
    "北非 非凡 是否 否则 否认 否决 否定 能否 可否 特别 区别 别人 分别 个别 级别 性别 类别 别墅 别名 辨别 识别 差别 "
    "告别 别的 鉴别 派别 十分 十足 "
    "一些 一般 一样 一起 一直 一定 一旦 一切 一致 一边 一面 统一 唯一 之一 一方面 进一步 二手 三明治 再三 四川 四处 "
    "五金 九龙 百度 百货 百科 千万 "
    "秋千 万一 两边 星期一 星期二 星期三 星期四 星期五 星期六 星期日 周一 周二 周三 周四 周五 周六 周日 上午 下午 "
    "今天 明天 昨天 今年 去年 明年 "
    "無料 無線 無限 無償 少ない 危ない なければならない なければなりません なくてはならない ないといけない "
    "かもしれない かもしれません "
    "ではありません では じゃ です ます "
    "ました でした である という から まで より など について によって において として ている ています した する "
    "します される されます され こと もの"
)
"""Words of scripts without spaces that must not be read by their characters: 非常 negates nothing, 十分 is not ten."""

_NUMBER_ROWS = (
    "zero cero null nul 零 〇 ноль",
    "one uno eins 一 один",
    "two twice dos dois duas zwei deux 二 两 兩 два",
    "three thrice tres três drei trois 三 три",
    "four cuatro quatro vier quatre 四 четыре",
    "five cinco fünf cinq 五 пять",
    "six seis sechs 六 шесть",
    "seven siete sete sieben sept 七 семь",
    "eight ocho oito acht huit 八 восемь",
    "nine nueve nove neun neuf 九 девять",
    "ten diez dez zehn dix 十 десять",
    "eleven onze elf",
    "twelve doce doze zwölf douze",
    "thirteen",
    "fourteen",
    "fifteen quince quinze",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty veinte vinte zwanzig vingt",
    "thirty treinta trinta dreißig trente",
    "forty",
    "fifty cincuenta cinquenta fünfzig cinquante",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
)
NUMBER_WORDS = {
    word: value
    for value, row in zip((*range(21), *range(30, 100, 10)), _NUMBER_ROWS, strict=True)
    for word in row.split()
}


MAGNITUDES = {
    word: value
    for value, row in {
        0.01: "cents",
        10.0: "十",
        100.0: "hundred cien cem hundert cent 百",
        1e3: "thousand mil tausend mille 千 k",
        1e4: "万 萬",
        1e6: "million millions millón millones milhão milhões mio millionen миллион миллионов m",
        1e8: "亿 億",
        1e9: "billion billions bilhão bilhões milliarde milliarden milliard milliards mrd bn миллиард",
        1e12: "trillion trillions",
    }.items()
    for word in row.split()
}

_MONTH_ROWS = (
    "january jan enero janeiro januar janvier января",
    "february feb febrero fevereiro februar février февраля",
    "march mar marzo março märz mars марта",
    "april apr abril avril апреля",
    "may mayo maio mai мая",
    "june jun junio junho juni juin июня",
    "july jul julio julho juli juillet июля",
    "august aug agosto août августа",
    "september sep sept septiembre setembro septembre сентября",
    "october oct octubre outubro oktober octobre октября",
    "november nov noviembre novembro novembre ноября",
    "december dec diciembre dezembro dezember décembre декабря",
)
MONTHS = {word: month for month, row in enumerate(_MONTH_ROWS, 1) for word in row.split()}

_UNIT_ROWS = (
    "% percent percentage percents pct prozent porcento 百分之:ratio 0.01",
    "½:ratio 0.01",
    "‰ permille promille 千分之:ratio 0.001",
    "$ dollar dollars usd 美元",
    "€ euro euros eur 欧元",
    "£ gbp sterling 英镑",
    "¥ yen yuan rmb 元 人民币",
    "km kilometer kilometers kilometre kilometres kilómetros quilômetros kilomètres kilometern 公里 千米:length 1000",
    "mile miles mi meilen:length 1609.344",
    "m meter meters metre metres metros mètres metern 米:length 1",
    "cm centimeter centimeters centimetre centimetres 厘米:length 0.01",
    "mm millimeter millimeters millimetre millimetres 毫米:length 0.001",
    "nm nanometer nanometers:length 1e-9",
    "foot feet ft:length 0.3048",
    "inch inches:length 0.0254",
    "yard yards:length 0.9144",
    "acre acres:area 4046.86",
    "hectare hectares ha:area 10000",
    "kg kilogram kilograms kilo kilos 公斤 千克:mass 1",
    "g gram grams gramm gramme gramos gramas 克:mass 0.001",
    "mg milligram milligrams 毫克:mass 1e-6",
    "microgram micrograms mcg µg μg:mass 1e-9",
    "lb lbs:mass 0.45359",
    "ounce ounces oz:mass 0.02835",
    "ton tons tonne tonnes tonnen 吨:mass 1000",
    "liter liters litre litres litros 升:volume 1",
    "ml milliliter milliliters millilitre millilitres 毫升:volume 0.001",
    "gallon gallons:volume 3.785",
    "ms millisecond milliseconds 毫秒:time 0.001",
    "second seconds sec secs segundos sekunden 秒:time 1",
    "minute minutes min mins minutos minuten 分钟:time 60",
    "hour hours hr hrs h horas stunde stunden heures 小时:time 3600",
    "fortnight fortnights:time 1209600",
    "day days día días dia dias tag tage tagen jour jours 天 日:time 86400",
    "week weeks semana semanas woche wochen semaine semaines 周 星期:time 604800",
    "month months mes meses monat monate monaten mois 个月:time 2629800",
    "year years yr yrs año años ano anos jahr jahre jahren an ans années 年:time 31557600",
    "decade decades:time 315576000",
    "century centuries:time 3155760000",
    "kb kilobyte kilobytes:bytes 1e3",
    "mb megabyte megabytes:bytes 1e6",
    "gb gigabyte gigabytes:bytes 1e9",
    "tb terabyte terabytes:bytes 1e12",
    "celsius °c 摄氏度",
    "fahrenheit °f",
    "hz hertz:frequency 1",
    "khz kilohertz:frequency 1e3",
    "mhz megahertz:frequency 1e6",
    "ghz gigahertz:frequency 1e9",
    "watt watts w:power 1",
    "kw kilowatt kilowatts:power 1e3",
    "mw megawatt megawatts:power 1e6",
    "mph:speed 1.609",
    "kmh km/h kph:speed 1",
    "knot knots:speed 1.852",
    "volt volts:volt 1",
)
UNITS = {word: row.split()[0] for row in _UNIT_ROWS for word in row.partition(":")[0].split()}
UNIT_SCALES = {
    row.split()[0]: (scale.split()[0], float(scale.split()[1]))
    for row, _, scale in (row.partition(":") for row in _UNIT_ROWS)
    if scale
}
"""What a unit measures, and how much of it; units without an entry convert to nothing."""

APPROXIMATIONS = _words(
    "about around within after for takes take took lasts last lasted least most than only nearly almost roughly "
    "approximately over under exactly to up is was by"
)
"""Words before "a month" that make it a quantity."""

OPERATIONS = {
    word: sign
    for sign, row in {
        "+": "total altogether together sum combined overall plus add adding added",
        "-": "difference less fewer more remaining left minus remain longer shorter later earlier older younger higher "
        "lower cheaper ahead rest between increase increased decrease decreased rose fell grew",
        "*": "times each every per multiplied",
        "/": "share percent percentage % ratio average half twice fraction",
    }.items()
    for word in row.split()
}
"""Words that name how a number follows from two others."""


_OPPOSITE_PAIRS = (
    "before:after prior:after first:last previous:next increase:decrease|reduce|lower|fall|decline|drop|shrink "
    "rises|climbs:falls|drops|declines|decreases "
    "rise|grow|raise|climb:fall|decrease|decline|drop|shrink|reduce|lower "
    "rose|grew|climbed:fell|declined|dropped|shrank|decreased growth:decline gain:loss more:less|fewer most:least "
    "majority:minority higher:lower highest:lowest largest|biggest|greatest:smallest larger|bigger|greater:smaller "
    "big|large|huge:small|tiny|little long:short|brief longer:shorter longest:shortest old:young|new "
    "older:younger|newer oldest:youngest|newest early:late earlier:later earliest:latest "
    "above|over:below|under|beneath exceed:below inside|indoor|indoors:outside|outdoor|outdoors north:south "
    "east:west northern:southern eastern:western northeast:southwest northwest:southeast left:right top:bottom "
    "front:rear|back male:female man:woman men:women boy:girl husband:wife father:mother brother:sister "
    "son:daughter win|won|beat|defeated:lose|lost always:never legal:illegal|unlawful "
    "allow|permit:forbid|prohibit|prevent|ban|deny allowed|permitted:forbidden|prohibited|banned|denied "
    "enable|activate:disable|deactivate enabled|activated:disabled|deactivated enables:disables "
    "true|correct:false|incorrect|wrong hot|warm:cold|cool hotter|warmer:colder|cooler "
    "start|begin|commence:end|finish|stop started|began|begun:ended|finished|stopped start|starts|begins:ends|stops "
    "open|opened|opens:close|closed|closes|shut public:private maximum|max:minimum|min maximal:minimal upper:lower "
    "positive:negative accept|approve:reject|refuse|decline|deny accepted|approved:rejected|refused|declined|denied "
    "accepts|approves:rejects|refuses include|contain:exclude included|contained:excluded "
    "includes|including:excludes|excluding safe|harmless:dangerous|unsafe|harmful|risky|hazardous safer:riskier "
    "major:minor black:white light:heavy|dark lighter:heavier|darker bright:dark import:export imports:exports "
    "buy|purchase|acquire:sell bought|purchased|acquired:sold "
    "mandatory|required|compulsory|obligatory|necessary:optional|voluntary|unnecessary "
    "free:paid|chargeable|expensive|costly cheap|cheaper|inexpensive:expensive|costlier|dearer "
    "fast|quick|rapid:slow faster|quicker:slower accelerate:slow strong:weak stronger:weaker strengthen:weaken "
    "rich|richer|wealthy:poor|poorer full:empty wet:dry best:worst better:worse good|excellent:bad|poor "
    "improve|improves|improved:worsen|worsens|worsened|deteriorate "
    "create|created|add|added|build|built:delete|deleted|remove|removed|destroy erased|wiped:kept|stored|saved "
    "build|built|construct|constructed:destroy|destroyed|demolished|demolish founded|established:dissolved|closed "
    "arrive|arrived:depart|departed|left enter|entered:leave|exit|exited "
    "success|succeed|succeeded|successful:failure|fail|failed|unsuccessful profit:loss income:expense credit:debit "
    "support|supported|endorse|endorsed:oppose|opposed common|frequent:rare|uncommon|infrequent|scarce "
    "temporary:permanent manual|manually:automatic|automatically synchronous|sync:asynchronous|async "
    "internal:external input:output upload:download encrypt|encrypted:decrypt|decrypted|plaintext "
    "lock|locked:unlock|unlocked install:uninstall connect|connected:disconnect|disconnected "
    "upgrade|upgraded:downgrade|downgraded "
    "increase|increases|raises|grows:reduces|decreases|lowers|falls|shrinks|declines "
    "increased|raised:reduced|decreased|lowered hard|difficult:easy|simple soft:hard deep:shallow deeper:shallower "
    "wide|broad:narrow wider:narrower thick:thin thicker:thinner high|tall:low high:short taller:shorter "
    "loud:quiet|silent day:night morning:evening summer:winter spring:autumn|fall sunrise:sunset "
    "ancestor:descendant predecessor:successor present:absent guilty:innocent healthy:sick|ill|unhealthy "
    "alive|living:dead born:died urban:rural domestic:foreign local:remote possible:impossible valid:invalid "
    "sufficient:insufficient direct:indirect dependent:independent visible:invisible relevant:irrelevant "
    "regular:irregular approved:disapproved appear:disappear advantage:disadvantage formal:informal proper:improper "
    "plural:singular odd:even horizontal:vertical liquid:solid active:inactive|passive "
    "recommended:deprecated|discouraged "
    "keep|kept|retain|retained|store|stored:discard|discarded|delete|deleted|throw remember:forget victory:defeat "
    "war:peace love|like|admire|admired:hate|dislike|despise|despised "
    "need|needs|require|requires|has|have:lack|lacks agree|agreed:disagree|disagreed complete:incomplete|partial "
    "reusable|washable:disposable repaired|repair|fixed:broken|damaged spared:destroyed useful:useless "
    "sweet:bitter|sour lengthen|lengthens|extend|extends:shorten|shortens extended|lengthened:shortened "
    "heat|heated:cool|cooled lend|lent:borrow|borrowed employer:employee landlord:tenant seller:buyer "
    "sender:recipient|receiver parent:child teacher:student credits:debits 增加:减少 增长:下降 提高:降低 上升:下降 "
    "升高:降低 上涨:下跌 以前:以后 之前:之后 以上:以下 高于:低于 多于:少于 大于:小于 早于:晚于 最大:最小 最高:最低 "
    "最多:最少 最长:最短 最早:最晚 允许:禁止 可以:禁止 支持:反对 接受:拒绝 批准:拒绝 成功:失败 胜利:失败 战胜:败给 "
    "开始:结束 打开:关闭 开启:关闭 启用:禁用 公开:保密 免费:收费 安全:危险 有效:无效 合法:非法 必须:可选 必需:可选 "
    "同步:异步 内部:外部 进口:出口 买入:卖出 购买:出售 男性:女性 上午:下午 北部:南部 东部:西部 北方:南方 东方:西方 "
    "扩大:缩小 延长:缩短 加快:减慢 加强:削弱 优点:缺点 盈利:亏损 收入:支出 手动:自动 所有:部分 全部:部分 总是:从不 "
    "经常:很少 大多数:少数 aumenta|aumentó|sube:disminuye|disminuyó|baja antes:después|depois "
    "mayor|mais:menor|menos abierto|aberto:cerrado|fechado gratis|gratuito:pago permitido:prohibido|proibido "
    "primero|primeiro:último más:menos siempre|sempre:nunca vor:nach steigt|stieg:sinkt|sank|fällt|fiel "
    "erlaubt:verboten geöffnet|offen:geschlossen kostenlos:kostenpflichtig immer:nie größer:kleiner "
    "höher:niedriger|tiefer schneller:langsamer älter:jünger erste:letzte avant:après ouvert:fermé gratuit:payant "
    "autorisé:interdit toujours:jamais plus:moins"
)
_QUANTIFIER_ROWS = (
    "all every each everyone everything always whole entire 所有 全部 每 总是 todos todas todo sempre siempre alle "
    "jeder jede jedes immer tous toutes toujours",
    "most majority mostly mainly usually normally typically generally predominantly largely primarily many numerous "
    "lots often frequently 大多数 大部分 通常 许多 很多 经常 mayoría maioria meisten plupart muchos muitas muitos "
    "viele beaucoup oft",
    "some certain sometimes occasionally 一些 部分 有时 algunos alguns einige manche quelques parfois",
    "few rarely seldom hardly scarcely minority 少数 很少 pocos poucos wenige selten peu rarement",
)
OPPOSITES: dict[str, frozenset[str]] = {}
"""Words that exclude one another: opposites, and words of two groups that say how many or how often."""
for _ones, _others in (
    *(_pair.replace("|", " ").split(":") for _pair in _OPPOSITE_PAIRS.split()),
    *combinations(_QUANTIFIER_ROWS, 2),
):
    for _one, _other in product(_ones.split(), _others.split()):
        OPPOSITES[_one] = OPPOSITES.get(_one, frozenset()) | {_other}
        OPPOSITES[_other] = OPPOSITES.get(_other, frozenset()) | {_one}

LEXICON_ID = hashlib.sha256(
    json.dumps([globals()[name] for name in __all__], sort_keys=True, default=sorted).encode()
).hexdigest()[:12]
"""12 hex over all lists: a changed word breaks the series, as a changed prompt would."""
