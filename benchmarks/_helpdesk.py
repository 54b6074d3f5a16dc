"""Questions to a helpdesk whose topics are known: twenty in English, twenty in German, noise, typos.

The same each time. A topic is a sentence with choices, `(reset|change) my (password|passphrase)`. Sizes fall
from 400 to 10.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

NOISE = "noise"
QUESTIONS, NOISY, TYPOS = 3000, 0.08, 0.1
LARGEST, SMALLEST = 400, 10
CHOICE = re.compile(r"\(([^()]*)\)")

TOPICS = {
    "en": {
        "password": "(reset|change|recover|renew) (my|a forgotten|an expired) (password|passphrase|login password)",
        "invoice": "(download|get|find|print) (the|my|last month's|a copy of the) (invoice|bill|billing statement)",
        "sso": "(set up|enable|configure|connect) (single sign-on|SSO|SAML|Okta login) (for our team|with Azure|)",
        "printer": "(connect|install|fix|add) the (printer|office printer|network printer) (driver|queue|)",
        "vpn": "(connect to|reach|set up) the (VPN|company VPN|remote access tunnel) (from home|from the hotel|)",
        "refund": "(get|request|claim) (a refund|my money back|a reimbursement) for (an order|a purchase)",
        "delivery": "(track|follow|locate) my (parcel|package|shipment|delivery)",
        "export": "(export|save|dump) (a table|a report|all data|the records) (to|as) (CSV|Excel|a spreadsheet)",
        "api_key": "(create|rotate|revoke|generate) an (API key|access token|API token) for (the integration|a script)",
        "holiday": "(request|book|apply for|cancel) (vacation|annual leave|holiday|days off)",
        "mailbox": "(share|open|access) (a|the team's) (mailbox|inbox|shared inbox) in (Outlook|the mail program)",
        "calendar": "(sync|import|synchronize) my (calendar|appointments|meetings) with (Google|my phone)",
        "storage": "(free|increase|buy) (disk space|storage|more storage|cloud storage quota)",
        "laptop": "(order|replace|repair) (a|my) (laptop|notebook|broken laptop screen|keyboard)",
        "webhook": "(debug|receive|register|retry) (a|failed) (webhook|webhooks|event callbacks)",
        "address": "(update|correct|change) my (home|shipping|postal) address",
        "cancel_plan": "(cancel|end|terminate|downgrade) (my|our) (subscription|plan|contract)",
        "wifi": "(join|fix|speed up) the (wifi|wireless network|guest wifi)",
        "payroll": "(read|see|get) my (payslip|salary statement|wage slip)",
        "dark_mode": "(switch on|use|turn off) (dark mode|the dark theme|night colours)",
    },
    "de": {
        "password": "(mein|das vergessene|ein abgelaufenes) (Passwort|Kennwort) (zurücksetzen|ändern|erneuern)",
        "invoice": "(die|meine|eine Kopie der) (Rechnung|Abrechnung|Monatsrechnung) (herunterladen|finden|drucken)",
        "sso": "(Single Sign-On|SSO|die Anmeldung mit SAML) (einrichten|aktivieren|verbinden)",
        "printer": "den (Drucker|Netzwerkdrucker|Druckertreiber) (installieren|anschließen|reparieren)",
        "vpn": "(das VPN|die VPN-Verbindung|den Fernzugang) (von zu Hause|im Hotel|) (aufbauen|einrichten|erreichen)",
        "refund": "(eine Erstattung|mein Geld zurück|eine Rückzahlung) für (eine Bestellung|einen Kauf) bekommen",
        "delivery": "(mein Paket|meine Sendung|die Lieferung) (verfolgen|finden|orten)",
        "export": "(eine Tabelle|den Bericht|alle Daten) (als CSV|nach Excel) (exportieren|speichern)",
        "api_key": "einen (API-Schlüssel|API-Token|Zugriffsschlüssel) (erzeugen|erstellen|widerrufen)",
        "holiday": "(Urlaub|meinen Jahresurlaub|freie Tage) (beantragen|buchen|stornieren)",
        "mailbox": "(ein|das gemeinsame) (Postfach|Teampostfach) in Outlook (öffnen|teilen|freigeben)",
        "calendar": "(meinen Kalender|meine Termine|Besprechungen) mit (Google|dem Handy) (synchronisieren|abgleichen)",
        "storage": "(mehr Speicherplatz|Speicher|Plattenplatz) (kaufen|freigeben|bekommen)",
        "laptop": "(einen Laptop|mein Notebook|den kaputten Bildschirm) (bestellen|ersetzen|reparieren lassen)",
        "webhook": "(einen Webhook|fehlgeschlagene Webhooks|Ereignisse) (empfangen|registrieren|wiederholen)",
        "address": "meine (Adresse|Lieferadresse|Anschrift|Postanschrift) (ändern|aktualisieren|korrigieren)",
        "cancel_plan": "(mein Abo|unseren Vertrag|das Abonnement) (kündigen|beenden|herabstufen)",
        "wifi": "(das WLAN|das Gäste-WLAN|das drahtlose Netz) (nutzen|beschleunigen|reparieren)",
        "payroll": "(meine Gehaltsabrechnung|meinen Lohnzettel|die Lohnabrechnung) (sehen|lesen|abrufen)",
        "dark_mode": "(den Dunkelmodus|das dunkle Design|dunkle Farben) (einschalten|ausschalten|verwenden)",
    },
}
FRAMES = {
    "en": "(How (do|can) I|Hi, I need to|Is it possible to|I cannot|Where do I|Please help me to|Why can I not) "
    "{}(?|, please?| today?|, it worked yesterday.| on my phone?|. Thanks!)",
    "de": "(Wie kann ich|Hallo, ich muss|Ist es möglich,|Ich kann nicht|Wo kann ich|Bitte helfen Sie mir,|Warum kann "
    "ich nicht) {}(?|, bitte?| heute?|, gestern ging es noch.| am Handy?|. Danke!)",
}
CHATTER = {
    "en": "ok thanks weather tomorrow joke pizza who won football moon dinner sing president blue why hello test seven "
    "river happy birthday movie cat piano translate poem recipe stars lottery dance king train bread",
    "de": "ja danke Wetter morgen Witz Pizza wer gewann Fußball Mond Abendessen sing Präsident blau warum hallo Test "
    "sieben Fluss fröhlich Geburtstag Film Katze Klavier übersetze Gedicht Rezept Sterne Lotto Tanz König Zug Brot",
}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A question and its true topic."""

    question: str
    topic: str
    language: str


def sizes(count: int, total: int) -> list[int]:
    """Return falling sizes from the largest to the smallest, scaled to the total between them."""
    ratio = (SMALLEST / LARGEST) ** (1 / (count - 1))
    plain = [LARGEST * ratio**rank for rank in range(count)]
    middle = (total - LARGEST - SMALLEST) / sum(plain[1:-1])
    return [LARGEST, *(max(SMALLEST, round(size * middle)) for size in plain[1:-1]), SMALLEST]


def chosen(sentence: str, rng: random.Random) -> str:
    """Return the sentence with each of its choices made."""
    while found := CHOICE.search(sentence):
        sentence = sentence[: found.start()] + rng.choice(found[1].split("|")) + sentence[found.end() :]
    return " ".join(sentence.split())


def edited(text: str, rng: random.Random) -> str:
    """Return the text with two neighbouring characters swapped."""
    at = rng.randrange(max(1, len(text) - 1))
    return text[:at] + text[at : at + 2][::-1] + text[at + 2 :]


def helpdesk() -> list[Labelled]:
    """Return all questions, shuffled."""
    rng = random.Random(41)
    topics = [(language, name) for language in TOPICS for name in TOPICS[language]]
    rng.shuffle(topics)
    made: list[Labelled] = []
    noise = round(QUESTIONS * NOISY)
    for (language, name), size in zip(topics, sizes(len(topics), QUESTIONS - noise), strict=True):
        sentence = FRAMES[language].format(TOPICS[language][name])
        made += [Labelled(chosen(sentence, rng), f"{language}:{name}", language) for _ in range(size)]
    for number in range(noise):
        language = ("en", "de")[number % 2]
        words = rng.sample(CHATTER[language].split(), rng.randint(1, 7))
        made.append(Labelled(" ".join(words), NOISE, language))
    made = [
        Labelled(edited(item.question, rng), item.topic, item.language) if rng.random() < TYPOS else item
        for item in made
    ]
    rng.shuffle(made)
    return made
