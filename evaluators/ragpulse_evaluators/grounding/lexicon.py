"""Small closed word lists the offline checks share: function words, negations, number words, months, opposites.

The lists are unions over languages on purpose: an answer may mix languages, and a guess at the language would be one
more thing to be wrong about.
"""

__all__ = [
    "ABBREVIATIONS",
    "ALIASES",
    "FUNCTION_WORDS",
    "LIGHT_WORDS",
    "LINK_WORDS",
    "MAGNITUDES",
    "MONTHS",
    "NEGATIONS",
    "NUMBER_WORDS",
    "OPENERS",
    "ORDINALS",
    "PRONOUNS",
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

PRONOUNS = _words(
    "it its he his him she her hers they their them this these that those such both el ella ello sus suyo ele ela "
    "eles elas seu "
    "sua er sie ihr ihre sein seine dieser diese dieses il elle ils elles son sa ses leur 它 他 她 这 那 该 其 此"
)
"""Words by which a sentence speaks of what the one before it named."""

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

_NUMBER_ROWS = {
    0: "zero cero null nul 零 〇 ноль",
    1: "one uno eins 一 один once",
    2: "two twice dos dois duas zwei deux 二 两 兩 два",
    3: "three thrice tres três drei trois 三 три",
    4: "four cuatro quatro vier quatre 四 четыре",
    5: "five cinco fünf cinq 五 пять",
    6: "six seis sechs 六 шесть",
    7: "seven siete sete sieben sept 七 семь",
    8: "eight ocho oito acht huit 八 восемь",
    9: "nine nueve nove neun neuf 九 девять",
    10: "ten diez dez zehn dix 十 десять",
    11: "eleven onze elf",
    12: "twelve doce doze zwölf douze",
    13: "thirteen",
    14: "fourteen",
    15: "fifteen quince quinze",
    16: "sixteen",
    17: "seventeen",
    18: "eighteen",
    19: "nineteen",
    20: "twenty veinte vinte zwanzig vingt",
    30: "thirty treinta trinta dreißig trente",
    40: "forty",
    50: "fifty cincuenta cinquenta fünfzig cinquante",
    60: "sixty",
    70: "seventy",
    80: "eighty",
    90: "ninety",
}
NUMBER_WORDS = {word: value for value, row in _NUMBER_ROWS.items() for word in row.split() if word != "once"}

ORDINALS = {
    word: value
    for value, row in enumerate(
        ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 1
    )
    for word in row.split()
}

MAGNITUDES = {
    word: value
    for value, row in {
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
    "‰ permille promille 千分之:ratio 0.001",
    "$ dollar dollars usd 美元",
    "€ euro euros eur 欧元",
    "£ pounds gbp sterling 英镑",
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
    "lb lbs pound:mass 0.45359",
    "ounce ounces oz:mass 0.02835",
    "ton tons tonne tonnes tonnen 吨:mass 1000",
    "liter liters litre litres litros 升:volume 1",
    "ml milliliter milliliters millilitre millilitres 毫升:volume 0.001",
    "gallon gallons:volume 3.785",
    "ms millisecond milliseconds 毫秒:time 0.001",
    "second seconds sec secs segundos sekunden 秒:time 1",
    "minute minutes min mins minutos minuten 分钟:time 60",
    "hour hours hr hrs h horas stunde stunden heures 小时:time 3600",
    "day days día días dia dias tag tage tagen jour jours 天 日:time 86400",
    "week weeks semana semanas woche wochen semaine semaines 周 星期:time 604800",
    "month months mes meses monat monate monaten mois 个月:months 1",
    "year years yr yrs año años ano anos jahr jahre jahren an ans années 年:months 12",
    "decade decades:months 120",
    "century centuries:months 1200",
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
    "am",
    "pm",
)
UNITS = {word: row.split()[0] for row in _UNIT_ROWS for word in row.partition(":")[0].split()}
UNIT_SCALES = {
    row.split()[0]: (scale.split()[0], float(scale.split()[1]))
    for row, _, scale in (row.partition(":") for row in _UNIT_ROWS)
    if scale
}
"""What a unit measures, and how much of it; units without an entry convert to nothing."""

ALIASES = {
    "us": ("unit", "stat"),
    "usa": ("unit", "stat"),
    "uk": ("unit", "kingdom"),
    "eu": ("european", "union"),
    "un": ("unit", "nation"),
    "tv": ("television",),
    "ceo": ("chief", "executiv"),
    "cfo": ("financ", "chief"),
    "nyc": ("new", "york"),
    "id": ("identity",),
    **dict.fromkeys(("monday", "friday"), ("weekday",)),
    **dict.fromkeys(("saturday", "sunday"), ("weekend",)),
}
"""Short forms and the stems of what they stand for."""

OPENERS = _words("yes yeah yea yep no nope well oh hmm ok okay sure true right absolutely definitely indeed")

LINK_WORDS = _words(
    "to of for with by from at about into over up out off because since when if how what why while or than do did does "
    "should will would can could might must may some any then so like really quite too just same such been being "
    "para por com con sin sobre entre porque cuando si como pour avec par dans sur quand parce "
    "für mit von bei nach über durch weil wenn zu 因为 所以 如果 для от по при"
)
"""Words that tie in something new; a link the evidence lacks speaks against it more than a new pronoun does."""

LIGHT_WORDS = _words(
    "use uses used using call called calls know known make makes made making get gets got getting go goes going gone "
    "come comes came coming take takes took taking give gives gave given say says said see seen lot lots thing things "
    "people way ways kind kinds type types sort part parts first one time times year years day days today now still "
    "even only ever never back right sure different new old big large huge small long main major mainly mostly often "
    "sometimes usually almost around many most more much all famous popular become becomes became include includes "
    "including included help helps start starts started begin begins began work works various several other others "
    "another few little something someone anything everything place places name named based although though unless "
    "within otherwise instead beyond else once yet able possible need needs needed case cases pay pays paid set sets "
    "put puts keep keeps kept stay stays stayed remain remains happen happens turn turns run runs bring brings allow "
    "allows allowed receive receives received want wants wanted find found longer shorter later earlier least enough "
    "good next end ends reason reasons result results number numbers amount bit rest total exact normally together "
    "alone itself themselves yourself anyone everyone nobody whoever whatever whenever whereas"
)
"""Common words that commit to little on their own: a new one weighs less than another new word."""
