"""Addresses of judges: how people paste them, what of them is part of a judge's id, and which key belongs to one.

A key of the environment goes to its provider's own host over https, or to the address in that provider's `*_BASE_URL`
or `*_API_BASE`; nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, urlsplit

from ragpulse_evaluators.errors import ConfigurationError

_ENDPOINT = re.compile(r"/(?:chat/)?(?:completions|responses|embeddings|messages|models)/*$")
_OTHER_PROTOCOL = re.compile(r"/api/(?:chat|generate|embed|tags)/*$|:generateContent")
_LOOKS_LIKE_ADDRESS = re.compile(r"#|:/|^[^/]+:\d+/|^(?:localhost|[\d.]+|\[[\da-f:]+\])(?::\d+)?$", re.IGNORECASE)
_HOSTS = {
    "api.openai.com": "OPENAI",
    "openai.azure.com": "AZURE",
    "cognitiveservices.azure.com": "AZURE",
    "services.ai.azure.com": "AZURE_AI",
    "api.anthropic.com": "ANTHROPIC",
    "generativelanguage.googleapis.com": "GEMINI",
    "api.mistral.ai": "MISTRAL",
    "api.groq.com": "GROQ",
    "api.x.ai": "XAI",
    "api.deepseek.com": "DEEPSEEK",
    "api.cerebras.ai": "CEREBRAS",
    "api.perplexity.ai": "PERPLEXITYAI",
    "api.together.xyz": "TOGETHERAI",
    "api.fireworks.ai": "FIREWORKS",
    "integrate.api.nvidia.com": "NVIDIA_NIM",
    "openrouter.ai": "OPENROUTER",
    "dashscope.aliyuncs.com": "DASHSCOPE",
    "api.cohere.com": "COHERE",
    "api.cohere.ai": "COHERE",
}
"""A provider's own host → the beginning of its variables' names."""
_OLLAMA, _OLLAMA_BASE = "ollama/", "http://127.0.0.1:11434/v1"
_FORM = "write https://host:port/v1#model"
_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
_SHORTEST_SECRET = 8


def _refuse(problem: str) -> NoReturn:
    raise ConfigurationError(f"the address of a judge {problem}: {_FORM}")


class Address(NamedTuple):
    """The base of an OpenAI-compatible server."""

    parts: SplitResult
    """Without the endpoint's path."""

    @classmethod
    def parsed(cls, text: str) -> Address:
        """Read an address as people paste it; raises `ConfigurationError` that shows no key.

        An address without a path means `/v1`. The full URL of an endpoint is used as it is.
        """
        try:
            parts = urlsplit(text.strip())
            host, _ = parts.hostname, parts.port
        except ValueError:
            _refuse("has no valid host and port")
        if parts.scheme not in ("http", "https") or not host:
            _refuse("begins with http:// or https:// and a host")
        if re.search(r"\s", text.strip()):
            _refuse("has no spaces in it")
        if parts.username or {name for name, _ in parse_qsl(parts.query)} - {"api-version"}:
            _refuse("has no user and no key in it (name the key's variable with api_key_env)")
        if _OTHER_PROTOCOL.search(parts.path):
            _refuse("is that of OpenAI's protocol, not of the server's own")
        path, endpoint = _ENDPOINT.subn("", parts.path)
        path = path.rstrip("/") or ("" if endpoint else "/v1")
        return cls(parts._replace(netloc=parts.netloc.lower(), path=path, fragment=""))

    @property
    def base(self) -> str:
        """The address for clients that add the endpoint."""
        return self.parts._replace(query="").geturl()

    @property
    def endpoint(self) -> str:
        """The URL of chat completions."""
        return self.parts._replace(path=f"{self.parts.path}/chat/completions").geturl()

    @property
    def where(self) -> str:
        """Host, port and path: what tells two servers apart."""
        port = self.parts.port or (443 if self.parts.scheme == "https" else 80)
        host = self.parts.netloc.removesuffix(f":{port}")
        return f"{host}:{port}{self.parts.path}"

    @property
    def provider(self) -> str | None:
        """The beginning of the variables of the provider whose own host this is."""
        host = f".{self.parts.hostname}"
        own = (prefix for name, prefix in _HOSTS.items() if host.endswith(f".{name}"))
        return next(own, None) if self.parts.scheme == "https" else None

    def environment_key(self) -> str | None:
        """The key in the environment that belongs to this address; None where there is none."""
        prefixes = [*_prefixes_at(self.where), *filter(None, [self.provider])]
        return next((key for prefix in prefixes if (key := os.environ.get(f"{prefix}_API_KEY"))), None)


def _prefixes_at(where: str) -> Iterator[str]:
    for name, value in os.environ.items():
        prefix = re.sub(r"_(?:BASE_URL|API_BASE)$", "", name)
        with suppress(ConfigurationError):
            if prefix != name and Address.parsed(value).where == where:
                yield prefix


def environment_address(provider: str) -> str | None:
    """The address that the environment gives a provider's client, as in `OPENAI_BASE_URL`."""
    names = (f"{provider.upper()}_{suffix}" for suffix in ("BASE_URL", "API_BASE"))
    return next((value for name in names if (value := os.environ.get(name))), None)


def split_judge(judge: str, api_base: str | None = None) -> tuple[str, str] | None:
    """Address and model of `http://host:port/v1#model` or `ollama/NAME`; None for a model's name.

    Ollama is asked at `api_base`, else where the environment says, else on this computer. Raises `ConfigurationError`.
    """
    base, _, model = judge.strip().partition("#")
    if base.startswith(_OLLAMA):
        return api_base or environment_address("ollama") or _OLLAMA_BASE, judge.strip().removeprefix(_OLLAMA)
    if re.match(r"https?://", base, re.IGNORECASE):
        return base.strip(), model.strip() or "default"
    if _LOOKS_LIKE_ADDRESS.search(judge.strip()):
        _refuse("begins with http:// or https:// and a host")
    return None


def hidden(text: str, *secrets: str) -> str:
    """The text without these secrets, and without any secret of the environment."""
    environment = (value for name, value in os.environ.items() if _SECRET.search(name))
    for secret in sorted((*secrets, *environment), key=len, reverse=True):
        text = text.replace(secret, "***") if len(secret) >= _SHORTEST_SECRET else text
    return text


def spellings(secrets: Iterable[str | None]) -> tuple[str, ...]:
    """These secrets as they may be repeated: whole, by their words (`Bearer ...`), and as in an address."""
    words = [word for secret in secrets if secret for word in (secret, *secret.split())]
    return tuple(dict.fromkeys([*words, *map(quote, words), *map(quote_plus, words)]))


def sendable(place: str, what: str, value: str) -> str:
    """The value of a header; raises `ConfigurationError`, which does not show it, where no header can carry it."""
    if not (value.isascii() and value.isprintable()):
        raise ConfigurationError(
            f"the {what} of the judge {place} holds a line break or a sign that no header can carry"
        )
    return value
