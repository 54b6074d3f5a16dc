"""What leaves the process, and what is taken out before."""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.types import Attributes

import ragpulse
from ragpulse._record.credentials import redact_keys
from ragpulse._record.redaction import _CARD, _luhn, redaction, special_characters

from .conftest import Collector

SECRETS = {
    "sk-proj-abcdefghijklmnop1234": "[redacted:key]",
    "AKIAABCDEFGHIJKLMNOP": "[redacted:key]",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "[redacted:key]",
    "xoxb-1234567890-abcdefghij": "[redacted:key]",
    "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP0": "[redacted:key]",
    "whsec_abcdefghijklmnopqrstuvwxyz012345": "[redacted:key]",
    "ya29.a0AfB_byCdefghijklmnop-qrstuv": "[redacted:key]",
    "dckr_pat_abcdefghijklmnopqrstuvwxyz0": "[redacted:key]",
    "gsk_abcdefghijklmnopqrstuvwxyz0123456789": "[redacted:key]",
    "pcsk_1abCD_abcdefghijklmnopqrstuvwxyz01234": "[redacted:key]",
    "mysql --db-password hunter22": "mysql --db-password [redacted:key]",
    "x --token 'a b' --api-key Abc123": "x --token [redacted:key] --api-key [redacted:key]",
    '{"auth": "abc", "otp": 123456}': '{"auth": "[redacted:key]", "otp": [redacted:key]}',
    "{'dbPass': 'abc', 'jwt': 'x', 'sessionid': 'y'}": (
        "{'dbPass': '[redacted:key]', 'jwt': '[redacted:key]', 'sessionid': '[redacted:key]'}"
    ),
    "Bearer abcdefghijklmnop": "Bearer [redacted:key]",
    "password=hunter22": "password=[redacted:key]",
    'db_password = "hun \\"ter"': 'db_password = "[redacted:key]"',
    '{"apiKey": "abc", "n": 1}': '{"apiKey": "[redacted:key]", "n": 1}',
    r'{"arguments": "{\"x-api-key\": \"abc\"}"}': r'{"arguments": "{\"x-api-key\": \"[redacted:key]\"}"}',
    "{'token': 'abc'}": "{'token': '[redacted:key]'}",
    "Authorization: Basic YTpi": "Authorization: [redacted:key]",
    "Authorization: ApiKey abc=": "Authorization: [redacted:key]",
    "Ocp-Apim-Subscription-Key: 0123456789": "Ocp-Apim-Subscription-Key: [redacted:key]",
    "My API key: 0123abcd.": "My API key: [redacted:key]",
    "SIGNING_KEY=abcdef": "SIGNING_KEY=[redacted:key]",
    "curl -u Basic dXNlcjpwYXNz": "curl -u Basic [redacted:key]",
    "Cookie: sid=abc; theme=dark\nHost: x": "Cookie: [redacted:key]\nHost: x",
    "token: abc123": "token: [redacted:key]",
    "postgres://joe:p@ss@db/x": "postgres://joe:[redacted:key]@db/x",
    "Name=a;AccountKey=abc==;Pwd=1234;Host": "Name=a;AccountKey=[redacted:key];Pwd=[redacted:key];Host",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "[redacted:key]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAtest0123456789\n-----END RSA PRIVATE KEY-----": "[redacted:key]",
    "4111 1111 1111 1111": "[redacted:card]",
    "5500-0000-0000-0004": "[redacted:card]",
}
INNOCENT = (
    "The task-list of 2026-11-21 has 12345678 items.",
    "order 4111 1111 1111 1112",
    "0.1234567890123456789",
    "risk-averse sk-learn users",
    "mail me at a@b.example",
    "Basic programming: the secret: patience. A token: roughly four letters. Password: your own.",
    "max_tokens=500, token_count: 12345678, if token == other, see https://x.example/a:b@c",
    "The private key: required. A secret key: persistence, and the API key: optional.",
    '{"token": null, "password": "", "tokens": ["a"]}',
    '{"pass_count": "a", "author": "b", "authority": "c", "option": "d", "compass": "e", "pass": 12, "sessionId": "f"}',
    '{"name": "token", "type": "string", "value_of": "x", "required": ["password", "e-mail"]}',
    "Give --password PASSWORD or --token VALUE; the option --api-key is old. pass: 5, auth=basic, OTP: off",
    "| --- | --------token-------- | a --token <token> --password $PASSWORD",
    "ASG.abcdefghijklmnopqrstuv.abcdefghijklmnop and SG.short, ya29.x, the-gsk-of-years",
    "run 1700000000000000000",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_credentials_and_card_numbers_are_removed_by_default(secret: str) -> None:
    """Inside other text, and named by what it was."""
    applied: list[str] = []
    assert redaction("default")(f"before {secret} after", applied) == f"before {SECRETS[secret]} after"
    assert applied


@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Numbers that fail the check digit, words that look a little like keys, addresses."""
    assert redaction("default")(text, []) == text


def test_values_under_a_secrets_name_are_removed_from_json() -> None:
    """Texts and numbers at any depth below it; a token of a model's answer is no secret."""
    redact, applied = redaction("default"), list[str]()
    given = {
        "Cookie": {"sid": "abc", "n": [1]},
        "on": {"password": 1234, "token": None},
        "tokens": ["a"],
        "headers": [["Authorization", "x"], ["Accept", "y"]],
        "variables": [{"name": "sid_token", "value": "x"}, {"value": "y", "key": "X-Api-Key"}],
        "params": [{"name": "q", "value": "z"}, {"name": "token", "type": "string"}],
        "argv": ["run", "--password", "x", "--verbose", "y"],
        "required": ["password", "e-mail"],
        "tests": {"pass": 12, "fail": 3},
    }
    unchanged = {
        "Cookie": {"sid": "[redacted:key]", "n": ["[redacted:key]"]},
        "on": {"password": "[redacted:key]", "token": None},
        "headers": [["Authorization", "[redacted:key]"], ["Accept", "y"]],
        "variables": [
            {"name": "sid_token", "value": "[redacted:key]"},
            {"value": "[redacted:key]", "key": "X-Api-Key"},
        ],
        "argv": ["run", "--password", "[redacted:key]", "--verbose", "y"],
    }
    assert json.loads(redact.json(json.dumps(given), applied)) == {**given, **unchanged}
    assert applied == ["key"]
    piece = json.dumps({"token": "Par", "logprob": -0.1})
    assert json.loads(redact.json(piece, [])) == json.loads(piece)
    assert redaction("card").json(json.dumps(given), []) == json.dumps(given)


def test_rules_are_chosen_by_name_pattern_or_function() -> None:
    """E-mail on request, own patterns, own functions, nothing."""
    text = "a@b.example T-1234 sk-abcdefghijklmnopqrst"
    assert redaction("all")(text, []) == "[redacted:email] T-1234 [redacted:key]"
    assert redaction([re.compile(r"T-\d+"), str.upper])(text, []) == "A@B.EXAMPLE [REDACTED] SK-ABCDEFGHIJKLMNOPQRST"
    assert redaction("email,card").describe() == "email, card"
    assert redaction("off")(text, []) == redaction(None)(text, []) == redaction(False)(text, []) == text
    with pytest.raises(ValueError, match="unknown redaction 'emial'"):
        redaction("emial")


@pytest.mark.parametrize(
    "part",
    [
        "eyJ-",
        "x",
        "1 ",
        "sk-",
        "a@",
        "a.",
        "-----BEGIN A ",
        "1",
        "password=",
        'secret:"',
        'token=\\"',
        "Basic ",
        "://a:",
        "cookie: a=",
        "pwd",
    ],
)
def test_no_text_makes_redaction_slow(part: str) -> None:
    """256 KiB that almost match, over and over; patterns that retry at each place would take minutes."""
    text = part * (262_144 // len(part)) + " api a@ eyJ"
    clean = redaction("all")(text, [])
    assert clean == text or "[redacted:key]" in clean


def test_a_failing_redaction_function_withholds_the_text() -> None:
    """What should have been redacted does not leave."""
    assert "withheld" in redaction(lambda text: 1 / 0)("secret", [])


def test_every_text_of_a_span_is_redacted_and_marked(pulse: Collector) -> None:
    """Query, response, documents with metadata, errors and feedback; JSON stays JSON."""
    secret = "sk-abcdefghijklmnopqrst"

    @ragpulse.retriever
    def search(query: str) -> list[dict[str, object]]:
        return [{"text": secret, "metadata": {"deep": [secret]}, "score": 0.12345678901234567}]

    @ragpulse.tool
    def call(argument: str, other: int) -> dict[str, str]:
        raise ValueError(secret)

    search(secret)
    with pytest.raises(ValueError, match="sk-"):
        call(secret, 1)
    ragpulse.feedback("1" * 32, comment=secret)
    assert ragpulse.flush(timeout=60)
    assert secret not in "".join(str(span.message) for span in pulse.spans) + str(pulse.logs)
    attributes = pulse.one("search").attributes
    (document,) = json.loads(attributes["gen_ai.retrieval.documents"])
    assert (document["metadata"], document["score"]) == ({"deep": ["[redacted:key]"]}, 0.12345678901234567)
    assert attributes["ragpulse.redacted"] == ["key"]
    assert json.loads(pulse.one("call").attributes["input.value"]) == {"argument": "[redacted:key]", "other": 1}


def test_what_a_function_withholds_is_not_in_its_exceptions(pulse: Collector) -> None:
    """Nor in those of the functions around it, which repeat the text or are raised from it; frames and types stay."""

    @ragpulse.retriever(capture_inputs=False)
    def search(query: str) -> list[str]:
        raise ValueError(f"nothing about {query}")

    @ragpulse.rag
    async def answer(number: int) -> None:
        try:
            search("private")
        except ValueError as error:
            raise LookupError(f"failed: {error}") from error

    request = ragpulse.tracer_provider().get_tracer("http").start_as_current_span("request")
    with pytest.raises(LookupError, match="private"), request:
        asyncio.run(answer(1))
    with pytest.raises(ValueError, match="public"):
        ragpulse.rag(name="other")(lambda q: int(q))("public")
    ragpulse.flush(timeout=60)
    assert "private" not in "".join(str(span.message) for span in pulse.spans)
    ((_, attributes),) = pulse.one("answer").events
    assert attributes["exception.type"] == "LookupError"
    assert "in search" in attributes["exception.stacktrace"]
    assert pulse.one("request").message.status.code == 2
    assert "public" in pulse.one("other").message.status.message


def test_session_user_tags_and_metadata_are_redacted(collector: Collector) -> None:
    """As any text, on our provider and on the spans of the application's own; named arguments of tools, too."""
    provider = TracerProvider()
    seen = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    for theirs in (None, provider):
        ragpulse.configure(endpoint=collector.url, redact="all", tracer_provider=theirs, isolated=theirs is None)
        facts = {"tags": ["jane@doe.example"], "metadata": {"cookie": "jane", "to": "jane@doe.example"}}
        with ragpulse.attributes(session_id="jane@doe.example", user_id="sk-abcdefghijklmnopjane", **facts):
            ragpulse.tool(lambda password: None)("jane")
            ragpulse.rag(lambda token, question: None)("jane", "Why?")
        span = ragpulse.tracer_provider().get_tracer("http").start_span("request")
        span.set_attributes({"http.request.header.authorization": ["jane"], "sizes": (1, 2)})
        span.end()
        ragpulse.shutdown(timeout=60)
    assert "jane" not in str(collector.spans) + str([span.to_json() for span in seen.get_finished_spans()])
    first = collector.spans[0].attributes
    assert (first["session.id"], first["tag.tags"]) == ("[redacted:email]", ["[redacted:email]"])
    assert json.loads(first["metadata"]) == {"cookie": "[redacted:key]", "to": "[redacted:email]"}
    assert json.loads(first["input.value"]) == {"password": "[redacted:key]"}
    assert collector.spans[1].attributes["input.value"] == "Why?"
    assert collector.spans[2].attributes["sizes"] == [1, 2]


def test_without_content_only_figures_are_sent(collector: Collector) -> None:
    """No text of any kind, but ids, scores, tokens and the mark."""
    ragpulse.configure(endpoint=collector.url, capture_content=False)
    ragpulse.rag(name="root")(lambda q: q)("private")
    ragpulse.retriever(name="search")(lambda q: [{"id": "d1", "text": q, "metadata": {"m": q}}])("private")
    ragpulse.llm(name="chat")(lambda messages: {"text": "private", "usage": {"prompt_tokens": 1}})(
        [{"role": "user", "content": "private"}]
    )
    with ragpulse.attributes(metadata={"m": "private"}), ragpulse.span("meta"):
        pass
    ragpulse.feedback("1" * 32, comment="private")
    theirs: Attributes = {
        "gen_ai.prompt.0.content": "private",
        "llm.input_messages.0.message.content": "private",
        "url.full": "http://127.0.0.1/ask?q=private",
        "n": 1,
    }
    ragpulse.tracer_provider().get_tracer("x").start_span("theirs", attributes=theirs).end()
    ragpulse.shutdown(timeout=60)
    assert "private" not in "".join(str(span.message) for span in collector.spans) + str(collector.logs)
    assert json.loads(collector.one("search").attributes["gen_ai.retrieval.documents"]) == [{"id": "d1", "score": None}]
    assert collector.one("chat").attributes["gen_ai.usage.input_tokens"] == 1
    assert collector.one("root").attributes["ragpulse.content.captured"] is False


PIECES = (
    "password=", "PassWord: ", "api_key=", "apikey=", "Api-Key: ", "secret=", "TOKEN=", "sk-", "rk_", "AKIA", "ghp_",
    "github_pat_", "glpat-", "npm_", "hf_", "xoxb-", "AIza", "eyJ", "Bearer ", "bearer ", "-----BEGIN PRIVATE KEY-----",
    "Cookie: ", '"x-api-key":', "\\\"", "'", "Pass Phrase", "connection_string", "AccountKey", "Basic ", "dXNlcjpwYXNz",
    "--", "password ", "auth\\\"", "OTP'", "userPass\"", '"value":', "SG.", "ya29.", "whsec_", "gsk_", ", ",
    ":", "postgres://", "u", "@", "ABCDEFGH", "abcdefgh", "12345678",
    "4111", "é", "٣", "\udc80", ".", "-", "=", " ", "\n", '"', "!",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=2000, deadline=None)
def test_the_cheap_look_at_a_text_never_hides_a_secret(text: str) -> None:
    """Whatever the patterns would find by themselves is found behind their guards."""
    found = _CARD.sub(lambda number: "[redacted:card]" if _luhn(number.group()) else number.group(), text)
    assert redaction("card")(text, []) == found
    assert redaction("key")(text, []) == redact_keys(text)
    data = text.encode("utf-8", "surrogatepass")
    assert redaction("card").suspects(data, special_characters(data)) or found == text
    assert redaction("key").suspects(data, special_characters(data)) or redact_keys(text) == text
