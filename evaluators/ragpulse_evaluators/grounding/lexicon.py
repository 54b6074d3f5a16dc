"""Small closed word lists the offline checks share: function words, negations, number words, months, opposites.

The lists are unions over languages on purpose: an answer may mix languages, and a guess at the language would be one
more thing to be wrong about. They change scores, so `LEXICON_ID` is part of the evaluators' versions.
"""

import hashlib

__all__ = [
    "ABBREVIATIONS",
    "ALIASES",
    "FUNCTION_WORDS",
    "LEXICON_ID",
    "LIGHT_WORDS",
    "LINK_WORDS",
    "MAGNITUDES",
    "MONTHS",
    "NEGATIONS",
    "NUMBER_WORDS",
    "OPENERS",
    "OPINIONS",
    "OPPOSITES",
    "ORDINALS",
    "SELF_WORDS",
    "SYNONYMS",
    "UNITS",
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
    "не нет никогда без לא אין ללא לם لا لم لن ليس ليست غير بدون 不 没 沒 无 無 未 非 否 别 ない ません नहीं"
)

SELF_WORDS = _words(
    "i me my mine myself we us our ours you your yours i'm i've i'll i'd you're you've you'll we're we've im ive "
    "yo mi mí nosotros eu meu minha nós ich mein meine wir je j'ai mon ma mes nous 我 我们 я мой мы"
)

_ENGLISH = _words(
    "a an the this that these those there here it its he him his she her hers they them their theirs who whom whose "
    "which what when where why how and or but so if then than as at by for from in into of off on onto out over to up "
    "with about between is are was were be been being am do does did done doing has have had having will would can "
    "could shall should may might must also too just very really quite some any each every both either such same own "
    "well yes yeah yea oh ok okay like it's that's he's she's there's they're they've they'll they'd he'll he'd she'll "
    "she'd it'll it'd who's what's let's lets 're 've 'll 'd 's 'm "
    "however therefore thus because while during through since until against among per via re ve ll s t d m don didn "
    "doesn isn wasn actually definitely certainly mainly usually basically interestingly generally"
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
    "は が を に の で と も へ や か ね よ だ た て し い る れ さ す ま "
    "은 는 이 가 을 를 의 에 에서 와 과 도 로 으로"
)
FUNCTION_WORDS = _ENGLISH | SELF_WORDS | _ROMANCE | _GERMAN | _OTHERS

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
    "% percent percentage prozent porcento 百分",
    "$ dollar dollars usd",
    "€ euro euros eur",
    "£ pounds gbp sterling",
    "¥ yen yuan rmb 元",
    "km kilometer kilometers kilometre kilometres kilómetros quilômetros kilomètres",
    "mile miles mi",
    "m meter meters metre metres metros mètres 米",
    "cm centimeter centimeters centimetre centimetres",
    "mm millimeter millimeters millimetre millimetres",
    "nm nanometer nanometers",
    "foot feet ft",
    "inch inches",
    "yard yards",
    "kg kilogram kilograms kilo kilos 公斤",
    "g gram grams gramm",
    "lb lbs pound",
    "ton tons tonne tonnes",
    "liter liters litre litres 升",
    "gallon gallons",
    "second seconds sec secs segundos sekunden 秒",
    "minute minutes min mins minutos minuten 分钟",
    "hour hours hr hrs horas stunden heures 小时",
    "day days días dias tage jours 天 日",
    "week weeks semanas wochen semaines 周",
    "month months meses monate mois",
    "year years yr yrs años anos jahre ans années 年",
    "decade decades",
    "century centuries",
    "kb kilobyte kilobytes",
    "mb megabyte megabytes",
    "gb gigabyte gigabytes",
    "tb terabyte terabytes",
    "celsius °c",
    "fahrenheit °f",
    "hz hertz",
    "watt watts w",
    "kw kilowatt kilowatts",
    "mph",
)
UNITS = {word: row.split()[0] for row in _UNIT_ROWS for word in row.split()}

_OPPOSITE_PAIRS = (
    "before:after first:last increase:decrease increased:decreased increases:decreases rise:fall rose:fell more:less "
    "most:least higher:lower highest:lowest largest:smallest larger:smaller bigger:smaller big:small large:small "
    "long:short longer:shorter old:young older:younger oldest:youngest oldest:newest early:late earlier:later "
    "earliest:latest above:below inside:outside north:south east:west northern:southern eastern:western left:right "
    "male:female man:woman men:women boy:girl win:lose won:lost always:never all:none many:few possible:impossible "
    "legal:illegal allowed:forbidden allow:forbid enable:disable enabled:disabled true:false hot:cold start:end "
    "started:ended open:closed public:private maximum:minimum minimal:maximal positive:negative accept:reject "
    "accepted:rejected include:exclude included:excluded includes:excludes safe:dangerous major:minor black:white "
    "import:export buy:sell mandatory:optional required:optional free:paid fast:slow strong:weak upper:lower "
    "增加:减少 上升:下降 以前:以后 之前:之后"
)
OPPOSITES: dict[str, frozenset[str]] = {}
for _pair in _OPPOSITE_PAIRS.split():
    _one, _other = _pair.split(":")
    OPPOSITES[_one] = OPPOSITES.get(_one, frozenset()) | {_other}
    OPPOSITES[_other] = OPPOSITES.get(_other, frozenset()) | {_one}

ALIASES = {
    "us": ("unit", "stat"),
    "usa": ("unit", "stat"),
    "uk": ("unit", "kingdom"),
    "eu": ("european", "union"),
    "un": ("unit", "nation"),
    "tv": ("television",),
    "nyc": ("new", "york"),
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
    "another few little something someone anything everything place places name named based"
)
"""Common words that commit to little on their own: a new one weighs less than another new word."""

OPINIONS = _words(
    "love loves loved loving great cool fun awesome amazing favorite favourite favorites enjoy enjoyed enjoys "
    "interesting nice bad beautiful wonderful lovely wow haha lol hope wish glad fan fascinating exciting boring "
    "delicious tasty crazy funny scary hate hated terrible"
)
"""What people say of what they like: small talk that no context holds."""

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
    "foot feet|wolf wolves"
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
    _OPPOSITE_PAIRS,
    ALIASES,
    OPENERS,
    LINK_WORDS,
    LIGHT_WORDS,
    OPINIONS,
    _SYNONYM_ROWS,
)
"""12 hex over all lists: a changed word breaks the series, as a changed prompt would."""
