"""Labelled negatives from one's own answers: one small edit makes a supported answer wrong.

Tests any groundedness evaluator or judge: `perturb(cases)` returns every case as it is (supported) and one edited copy
for each kind of edit that applies (unsupported). The given cases are taken as supported: pass good ones. Word overlap
hardly moves under an edit. The edits here use only words of the case's own contexts or change one relation; those
that bring in another number, name or clause are in `edits`.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.grounding.lexicon import MONTHS, UNITS
from ragpulse_evaluators.grounding.perturb import edits
from ragpulse_evaluators.grounding.perturb.edits import Donors, Edit, Material, cased_like, pairs_in
from ragpulse_evaluators.grounding.text import names, split_sentences, tokenize

_QUANTIFIERS = pairs_in(
    "all:few every:hardly_any each:hardly_any most:few majority:minority many:few several:all some:all few:most "
    "both:neither always:sometimes usually:rarely normally:rarely often:rarely frequently:rarely mostly:rarely "
    "mainly:never sometimes:always rarely:usually only:also at_least:at_most at_most:at_least up_to:at_least"
)
_COMPARATIVES = pairs_in(
    "more:less less:more fewer:more higher:lower lower:higher faster:slower slower:faster larger:smaller "
    "smaller:larger bigger:smaller older:younger younger:older longer:shorter shorter:longer better:worse "
    "worse:better cheaper:costlier heavier:lighter lighter:heavier earlier:later later:earlier hotter:colder "
    "warmer:colder colder:warmer safer:riskier stronger:weaker weaker:stronger richer:poorer poorer:richer "
    "greater:smaller above:below below:above over:under within:after before:after after:before largest:smallest "
    "biggest:smallest quicker:slower highest:lowest lowest:highest"
)
_ANTONYMS = pairs_in(
    "opened:closed closed:opened opens:closes open:closed free:expensive allowed:forbidden forbidden:allowed "
    "prohibited:permitted permitted:prohibited accepted:rejected rejected:accepted rejects:accepts won:lost "
    "lost:won beat:lost_to bought:sold sold:bought buys:sells built:demolished founded:dissolved created:deleted "
    "enabled:disabled disabled:enabled included:excluded includes:excludes increases:decreases increased:decreased "
    "increase:decrease rose:fell fell:rose grew:shrank shrank:grew declined:increased decreased:increased "
    "reduces:raises raises:reduces lowers:raises improves:worsens shortens:lengthens required:optional "
    "mandatory:optional needs:lacks safe:dangerous dangerous:safe wet:dry dry:wet dark:bright public:private "
    "private:public first:last last:first north:south south:north northern:southern southern:northern "
    "eastern:western western:eastern left:right upper:lower admitted:excluded arrived:departed left:entered "
    "starts:ends begins:ends start:end full:empty possible:impossible deprecated:recommended synchronous:asynchronous "
    "asynchronous:synchronous supported:opposed admired:despised female:male washable:disposable inside:outside "
    "kept:discarded stored:discarded complete:incomplete damaged:repaired destroyed:spared success:failure "
    "failure:success useless:useful rare:common bitter:sweet"
)
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|has|have|had|can|will|must|may|should|does|cannot|never|always)\b")
_ATTRIBUTION = re.compile(
    r"\b(?:[Aa]ccording to (?:the )?|(?:said|told|says|showed|recommends|advises) by )((?:[A-Z]\w+)(?: [A-Z]\w+)*)"
    r"|\b((?:[A-Z][\w.]+)(?: [A-Z]\w+)*)(?= (?:said|says|told|reports|reported|found|showed|proved|stated|announced"
    r"|recommends|advises|described|called|discovered|suggested)\b)"
)
_SYMMETRIC = frozenset({"and", "or", "between", "with", "from", "to", "in", "of", "at", "on"})


def edit_entity(material: Material) -> Edit | None:
    """A name of the contexts in place of another one of the answer."""
    mine = _phrases(material, material.response)
    written = {material.response[s:e] for s, e in mine}
    others = [n for n in _context_names(material) if not any(n in w or w in n for w in written)]
    return material.exchange(mine, others)


def edit_role(material: Material) -> Edit | None:
    """Two names of one sentence in each other's place, around a verb or a comparison."""
    found: list[Edit] = []
    for sentence in split_sentences(material.response):
        phrases = _phrases(material, sentence.text)
        for (a, b), (c, d) in pairwise(phrases):
            between = [t for t in tokenize(sentence.text[b:c]) if t.norm not in _SYMMETRIC]
            one, other = sentence.text[a:b], sentence.text[c:d]
            if between and one not in other and other not in one and ";" not in sentence.text[b:c]:
                text = other + sentence.text[b:c] + one
                found.append(Edit(sentence.start + a, sentence.start + d, text))
    return material.chance.choice(found) if found else None


def _phrases(material: Material, text: str) -> list[tuple[int, int]]:
    """Return the places of names in a text: runs of words that the contexts write as names inside sentences."""
    known = _name_norms(material)
    spans: list[tuple[int, int]] = []
    for token in tokenize(text):
        if not (token.capital and token.norm in known):
            continue
        if spans and text[spans[-1][1] : token.start] == " ":
            spans[-1] = (spans[-1][0], token.end)
        else:
            spans.append((token.start, token.end))
    return spans


def _name_norms(material: Material) -> frozenset[str]:
    """Return the words written as names in the contexts, not those that only begin sentences."""
    sentences = [tokenize(s.text) for text in material.contexts for s in split_sentences(text)]
    sure = {t.norm for tokens in sentences for t in names(tokens)}
    first = {tokens[0].norm for tokens in sentences if len(tokens) > 1 and tokens[0].capital and tokens[1].norm in sure}
    lower = {t.norm for tokens in sentences for t in tokens if t.text.islower()}
    return frozenset((sure | first) - lower - MONTHS.keys() - UNITS.keys())


def _context_names(material: Material) -> list[str]:
    found = {text[s:e]: None for text in material.contexts for s, e in _phrases(material, text)}
    return list(found)


def edit_subject(material: Material) -> Edit | None:
    """The subject of another context's sentence in place of that of an answer's sentence."""
    mine = [(s.start, end) for s in split_sentences(material.response) if (end := _subject_end(s.text, s.start))]
    known = {t.key for t in material.tokens}
    others = [
        subject
        for text in material.contexts
        for s in split_sentences(text)
        if (end := _subject_end(s.text)) and known.isdisjoint(_content(subject := s.text[:end]))
    ]
    return material.exchange(mine, others)


def _subject_end(text: str, offset: int = 0) -> int:
    """Return where a short subject before an auxiliary verb ends; 0 where there is none."""
    verb = _AUXILIARY.search(text)
    subject = text[: verb.start()].rstrip() if verb else ""
    words = tokenize(subject)
    good = 0 < len(words) <= 6 and "," not in subject and any(t.content and t.kind == "word" for t in words)
    return offset + len(subject) if good else 0


def _content(text: str) -> set[str]:
    return {t.key for t in tokenize(text) if t.content}


def edit_attribution(material: Material) -> Edit | None:
    """Another source for what somebody said, or a source for what nobody did; both are names of the contexts."""
    given = _ATTRIBUTION.search(material.response)
    others = [n for n in _context_names(material) if n not in material.response]
    if not others:
        return None
    source = material.chance.choice(others)
    if given:
        group = 1 if given.group(1) else 2
        return Edit(given.start(group), given.end(group), source)
    first = material.tokens[0]
    kept = first.text if first.norm in _name_norms(material) else first.text[0].lower() + first.text[1:]
    return Edit(first.start, first.end, f"According to {source}, {kept}")


def edit_glued(material: Material) -> Edit | None:
    """The predicate of another context's sentence, said of the answer's last subject."""
    known = {t.key for t in material.tokens}
    predicates = []
    for text in material.contexts:
        for s in split_sentences(text):
            end = _subject_end(s.text)
            rest = s.text[end:].strip(" .")
            if end and known.isdisjoint(_content(s.text[:end])) and len(_content(rest) - known) >= 2:
                predicates.append(rest.split(", but ")[0].split(", and ")[0])
    at = len(material.response.rstrip(" \n.!?"))
    return Edit(at, at, f" and {material.chance.choice(predicates)}") if predicates and at else None


def edit_elsewhere(material: Material) -> Edit | None:
    """A number of another sentence of the contexts in place of one of the answer."""
    mine = [t for t in material.tokens if t.kind == "number"]
    written = {t.text for t in mine}
    context_numbers = [t.text for text in material.contexts for t in tokenize(text) if t.kind == "number"]
    others = [n for n in dict.fromkeys(context_numbers) if n not in written]
    return material.pick(mine, lambda _: material.chance.choice(others) if others else None)


def _exchange(pairs: dict[str, str]) -> Callable[[Material], Edit | None]:
    """Make an edit that puts the other word of a pair in place of the one the answer has."""
    pattern = re.compile(r"\b(?:" + "|".join(sorted(pairs, key=len, reverse=True)) + r")\b", re.I)

    def edit(material: Material) -> Edit | None:
        found = list(pattern.finditer(material.response))
        if not found:
            return None
        match = material.chance.choice(found)
        other = pairs[match.group().lower()]
        text = other if match.group()[0].islower() else other[0].upper() + other[1:]
        return Edit(match.start(), match.end(), cased_like(match.group(), text))

    return edit


EditKind = Literal[
    "original",
    "number",
    "date",
    "version",
    "name",
    "unit",
    "negation",
    "clause",
    "entity",
    "role",
    "subject",
    "attribution",
    "quantifier",
    "comparative",
    "antonym",
    "glued",
    "elsewhere",
]
_EDITS: dict[EditKind, Callable[[Material], Edit | None]] = {
    "number": edits.edit_number,
    "date": edits.edit_date,
    "version": edits.edit_version,
    "name": edits.edit_name,
    "unit": edits.edit_unit,
    "negation": edits.edit_negation,
    "clause": edits.edit_clause,
    "entity": edit_entity,
    "role": edit_role,
    "subject": edit_subject,
    "attribution": edit_attribution,
    "quantifier": _exchange(_QUANTIFIERS),
    "comparative": _exchange(_COMPARATIVES),
    "antonym": _exchange(_ANTONYMS),
    "glued": edit_glued,
    "elsewhere": edit_elsewhere,
}
KINDS: tuple[EditKind, ...] = tuple(_EDITS)


@dataclass(frozen=True, kw_only=True)
class LabelledCase:
    """A case with its truth: is the response supported by the contexts?"""

    case: Case
    supported: bool
    kind: EditKind
    edit: str
    """What was changed, e.g. "330 → 130"; empty for an original."""
    source: int
    """Position of the original in the given cases."""

    @property
    def label(self) -> int:
        """1 supported, 0 not: what `calibrate` takes as the human score."""
        return int(self.supported)


def perturb(cases: Sequence[Case], *, seed: int = 0, kinds: Sequence[EditKind] = KINDS) -> list[LabelledCase]:
    """Return originals (supported) and their edited copies (unsupported), in the order of the cases.

    Edits: another number, date, version, name or unit, a negation added or removed, a clause from elsewhere appended;
    from the case's own contexts another entity, subject, source, number or predicate, two roles exchanged; another
    quantifier, comparative or antonym. Cases without response or context texts are left out. Same cases and seed, same
    result.
    """
    usable = [i for i, case in enumerate(cases) if (case.response or "").strip() and any(case.texts)]
    donors = Donors.of([(cases[i].response or "", cases[i].texts) for i in usable])
    labelled: list[LabelledCase] = []
    for i in usable:
        labelled.append(LabelledCase(case=cases[i], supported=True, kind="original", edit="", source=i))
        labelled += _edited(cases[i], i, donors, seed, kinds)
    return labelled


def _edited(case: Case, i: int, donors: Donors, seed: int, kinds: Sequence[EditKind]) -> list[LabelledCase]:
    response, known = case.response or "", " ".join((*case.texts, case.response or ""))
    keys = frozenset(t.key for t in tokenize(known))
    found = []
    for kind in kinds:
        chance = random.Random(f"{seed}:{i}:{kind}")
        edit = _EDITS[kind](Material(response, case.texts, tuple(tokenize(response)), keys, donors, chance))
        if edit:
            changed = response[: edit.start] + edit.text + response[edit.end :]
            copy = case.model_copy(update={"response": changed})
            found.append(LabelledCase(case=copy, supported=False, kind=kind, edit=edit.describe(response), source=i))
    return found
