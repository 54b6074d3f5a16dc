"""Are planted content gaps found, and nothing else? Questions of a few large topics, gaps inside of them.

    python benchmarks/content_gaps.py [--runs N]

Two sets: banking77 (in RAGPULSE_SHARED_DATA or ../shared/data), its 77 subjects in a few large topics by the first word
of their names, and made questions of a helpdesk in five languages. A gap is unanswered at 62 %, all else at 5 %: users
differ in that (beta), and prefer some subjects. A listed group is right where at least half of its failures are planted
(`pure`: the part of its questions that is); a gap is found where right groups have half of its questions (`covered`).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from _grounding_model import data_folder

from ragpulse_collector.analysis.gaps.groups import GapKind, Groups, SampledQuestion
from ragpulse_collector.topics.vectors import static_vectors

FAILING, GAP, USERS = 0.05, 0.62, 300
LINE = "{:<56} {:>7} {:>8} {:>7} {:>5} {:>7} {:>6}"

LANGUAGES = {
    "en": ("How do I {}?|Please help me to {}|I want to {} today|Is it possible to {}?|Where can I {}, please?",
           "set up single sign-on|enable SSO|configure SAML login|connect Okta", "on the Team plan|for our team plan",
           "on the Business plan|for the free plan|with Azure|for contractors|on the trial|with Google|for guests"),
    "de": ("Wie kann ich {}?|Bitte helfen Sie mir, {}|Ich möchte {}|Ist es möglich, {}?|Wo kann ich {}, bitte?",
           "Single Sign-On einrichten|SSO aktivieren|die SAML-Anmeldung einstellen", "im Team-Tarif|im Teamtarif",
           "im Business-Tarif|im kostenlosen Tarif|mit Azure|für Gäste|in der Testphase|mit Google|für Externe"),
    "fr": ("Comment puis-je {} ?|Aidez-moi à {}|Je voudrais {}|Est-il possible de {} ?|Où puis-je {} ?",
           "configurer l'accès unique|activer le SSO|connecter SAML", "avec le forfait équipe|au forfait équipe",
           "avec le forfait entreprise|avec le forfait gratuit|avec Azure|pour les invités|pendant l'essai|en Google"),
    "es": ("¿Cómo puedo {}?|Ayúdame a {}|Quiero {}|¿Es posible {}?|¿Dónde puedo {}?",
           "configurar la sesión única|activar el SSO|conectar SAML", "en el plan de equipo|del plan de equipo",
           "en el plan de empresa|en el plan gratuito|con Azure|para invitados|durante la prueba|con Google"),
    "ja": ("{}にはどうすればいいですか|{}ことはできますか|{}方法を教えてください|どこで{}のですか",
           "シングルサインオンを設定する|SSOを有効にする|SAMLを接続する", "チームプランで|チームのプランで",
           "ビジネスプランで|無料プランで|Azureと|ゲストのために|試用版で|Googleと"),
}  # fmt: skip
"""Frames, what is asked for, the plan of the gap, other plans."""
OTHERS = {
    "en": "reset my password|track a parcel|download the invoice|install the printer|request vacation|order a laptop",
    "de": "mein Passwort ändern|ein Paket verfolgen|die Rechnung laden|den Drucker installieren|Urlaub buchen",
    "fr": "changer mon mot de passe|suivre un colis|télécharger la facture|installer l'imprimante|demander des congés",
    "es": "cambiar mi contraseña|seguir un paquete|descargar la factura|instalar la impresora|pedir vacaciones",
    "ja": "パスワードを変更する|荷物を追跡する|請求書をダウンロードする|プリンターを設置する|休暇を申請する",
}


@dataclass(frozen=True)
class Pool:
    """Texts of subjects, and the large topic of each subject."""

    name: str
    texts: dict[str, list[str]]
    topic: dict[str, str]


def banking() -> Pool:
    texts: dict[str, list[str]] = defaultdict(list)
    for row in map(json.loads, (data_folder() / "banking77.jsonl").read_text(encoding="utf-8").splitlines()):
        texts[row["topic"]].append(row["question"])
    return Pool("banking77", dict(texts), {name: name.split("_")[0].casefold() for name in texts})


def desk(language: str) -> Pool:
    """A topic "sso" with one subject for each plan, and other topics."""
    frames, verbs, gap, rest = (part.split("|") for part in LANGUAGES[language])

    def made(middles: Sequence[str], ends: Sequence[str]) -> list[str]:
        joined = [f"{end}{one}" if language == "ja" else f"{one} {end}".strip() for one in middles for end in ends]
        return [frame.format(one) for frame in frames for one in joined]

    texts = {"gap": made(verbs, gap), **{end: made(verbs, [end]) for end in rest}}
    topic = dict.fromkeys(texts, "sso")
    for other in OTHERS[language].split("|"):
        texts[other], topic[other] = made([other], ["", *rest[:3]]), other
    return Pool(f"helpdesk {language}", texts, topic)


def grid() -> Pool:
    """A topic of four requests for four plans; the gap is one request for one plan."""
    frames, plans = LANGUAGES["en"][0].split("|"), ("Team plan", "Business plan", "Free plan", "Enterprise plan")
    asks = (
        "set up SSO|enable single sign-on|configure SAML",
        "add seats|invite more users|buy licences",
        "see the price|know the cost|get a quote",
        "export the audit log|download the logs|keep logs longer",
    )
    texts = {
        f"{number} {plan}": [
            frame.format(f"{ask} {on} the {plan}")
            for frame in frames
            for ask in part.split("|")
            for on in ("on", "with", "under")
        ]
        for number, part in enumerate(asks)
        for plan in plans
    }
    texts["gap"] = texts.pop("0 Team plan")
    topic = dict.fromkeys(texts, "plans")
    for other in OTHERS["en"].split("|"):
        texts[other], topic[other] = [frame.format(other) for frame in frames], other
    return Pool("plans", texts, topic)


@dataclass(frozen=True)
class Case:
    """What is planted: so many gaps of a share of all questions each."""

    name: str
    gaps: int
    share: float
    one_user: bool = False
    even: float = FAILING
    count: int = 3000
    fitted: bool = True


def questions(pool: Pool, case: Case, rng: random.Random) -> tuple[list[SampledQuestion], list[str], set[str]]:
    """Return the questions, the subject of each, and the planted subjects."""
    names = sorted(pool.texts)
    planted = ["gap"] if "gap" in names else rng.sample(names, max(1, case.gaps))
    others = [name for name in names if name not in planted]
    rates = [rng.betavariate(case.even * 6, (1 - case.even) * 6) for _ in range(USERS)]
    liked = [[rng.gammavariate(1.0, 1.0) for _ in others] for _ in range(USERS)]
    weights = [rng.expovariate(1.0) + 0.1 for _ in range(USERS)]
    asked, subjects = [], []
    for number in range(case.count):
        user = rng.choices(range(USERS), weights)[0]
        inside = rng.random() < case.share * len(planted)
        subject = rng.choice(planted) if inside else rng.choices(others, liked[user])[0]
        rate = rates[user]
        if inside and case.one_user:
            user, rate = (0, 0.9) if rng.random() < 0.7 else (user, rate)
        elif inside and case.gaps:
            rate = GAP
        fails: list[GapKind] = ["unanswered"] if rng.random() < rate else []
        topic = pool.topic[subject] if case.fitted else None
        asked.append(SampledQuestion(str(number), rng.choice(pool.texts[subject]), topic, user, fails, 1.0))
        subjects.append(subject)
    return asked, subjects, set(planted if case.gaps else ())


CASES = [
    Case("a gap of 2 %", 1, 0.02), Case("a gap of 4 %", 1, 0.04), Case("two gaps of 2 %", 2, 0.02),
    Case("a gap of 2 %, no fit", 1, 0.02, fitted=False), Case("a gap of 4 %, no fit", 1, 0.04, fitted=False),
    Case("a gap of 4 %, 1,000 questions", 1, 0.04, count=1000),
    Case("a gap of 4 %, 9,000 questions", 1, 0.04, count=9000),
    Case("none, 5 % fail", 0, 0.03), Case("none, 30 % fail", 0, 0.03, even=0.3),
    Case("one user's failures", 0, 0.03, one_user=True),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(LINE.format("questions", "found", "covered", "right", "pure", "listed", "CPU s"))
    for pool in (banking(), grid(), *map(desk, LANGUAGES)):
        for case in CASES:
            if options.only in pool.name + ", " + case.name and (case.gaps < 2 or pool.name == "banking77"):
                measure(pool, case, options.runs)


def measure(pool: Pool, case: Case, runs: int) -> None:
    found = planted_in_all = right = listed = 0
    covered, seconds, pure = 0.0, 0.0, []
    for seed in range(runs):
        asked, subjects, planted = questions(pool, case, random.Random(f"{seed}"))
        began = time.process_time()
        groups = list(Groups(asked, static_vectors([one.query for one in asked]), 5).failing("unanswered"))
        seconds += time.process_time() - began
        inside = [[subjects[row] in planted for row in group if asked[row].fails] for group in groups]
        good = [group for group, own in zip(groups, inside, strict=True) if sum(own) >= len(own) / 2]
        pure += [sum(subjects[row] in planted for row in group) / len(group) for group in good]
        shown = [subjects[row] for group in good for row in group]
        parts = [shown.count(name) / subjects.count(name) for name in planted]
        listed, right, planted_in_all = listed + len(groups), right + len(good), planted_in_all + len(planted)
        found, covered = found + sum(part >= 0.5 for part in parts), covered + sum(parts)
    planted_columns = (f"{found}/{planted_in_all}", f"{covered / planted_in_all:.0%}") if case.gaps else ("-", "-")
    purity = f"{sum(pure) / len(pure):.0%}" if pure else "-"
    columns = (f"{right}/{listed}", purity, f"{listed / runs:.2f}", f"{seconds / runs:.2f}")
    print(LINE.format(f"{pool.name}, {case.name}", *planted_columns, *columns), flush=True)


if __name__ == "__main__":
    main()
