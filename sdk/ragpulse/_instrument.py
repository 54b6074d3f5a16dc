"""`ragpulse.instrument()`: records what libraries do, without a decorator, through the OpenInference instrumentors.

They are optional packages, imported only here, and make their spans on our provider: the same redaction, delivery,
session and nesting as decorated functions. `ragpulse run` does it for a program that is not changed at all.
"""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ._config import configure
from ._dspy import track_usage
from ._guard import GUARD, logger
from ._runtime import PROCESS, PROVIDER
from ._settings import disabled_instrumentations

INSTALL = "pip install 'ragpulse[instrument]'"
USAGE = """usage: ragpulse run PROGRAM [ARGUMENT ...]
       ragpulse run -m MODULE [ARGUMENT ...]

Runs a Python program with ragpulse.configure() and ragpulse.instrument(): `ragpulse run app.py`,
`ragpulse run uvicorn app:app`. RAGPULSE_* and OTEL_* variables configure it."""


_MACHINE_CODE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs begin that no Python runs, on Linux and macOS."""


class Library(NamedTuple):
    """A library and its OpenInference instrumentor."""

    package: str
    """The package that an application imports."""
    instrumentor: str
    """The class, in the module `openinference.instrumentation.NAME`."""
    install: str = ""
    """What installs the instrumentor, where the extra does not."""


LIBRARIES = {
    "openai": Library("openai", "OpenAIInstrumentor"),
    "anthropic": Library("anthropic", "AnthropicInstrumentor"),
    "litellm": Library("litellm", "LiteLLMInstrumentor"),
    "langchain": Library("langchain_core", "LangChainInstrumentor"),
    "llama_index": Library("llama_index.core", "LlamaIndexInstrumentor"),
    "haystack": Library("haystack", "HaystackInstrumentor"),
    "dspy": Library("dspy", "DSPyInstrumentor"),
    "bedrock": Library("boto3", "BedrockInstrumentor", "openinference-instrumentation-bedrock"),
    "crewai": Library("crewai", "CrewAIInstrumentor", "openinference-instrumentation-crewai"),
    "google_genai": Library("google.genai", "GoogleGenAIInstrumentor", "openinference-instrumentation-google-genai"),
    "groq": Library("groq", "GroqInstrumentor", "openinference-instrumentation-groq"),
    "instructor": Library("instructor", "InstructorInstrumentor", "openinference-instrumentation-instructor"),
    "mistralai": Library("mistralai", "MistralAIInstrumentor", "openinference-instrumentation-mistralai"),
    "openai_agents": Library("agents", "OpenAIAgentsInstrumentor", "openinference-instrumentation-openai-agents"),
    "smolagents": Library("smolagents", "SmolagentsInstrumentor", "openinference-instrumentation-smolagents"),
}
"""LangGraph is instrumented with LangChain."""
_DISTRIBUTIONS = {"haystack": "haystack-ai", "openai_agents": "openai-agents"}
"""What installs a library whose package has another name."""
_OPTIONS = {"crewai": {"use_event_listener": True}}
"""Of instrumentors: only with CrewAI's events each model call has a span; its crews state a growing sum."""


def instrument(*names: str) -> tuple[str, ...]:
    """Records what these libraries do, or all that are installed; returns the names of those that are recorded.

    Retrievals, model calls, tools and agents become spans with query, contexts, response, tokens and model, below the
    decorated functions that call them, or as traces of their own. Call it once, after `configure()`.

    Names: openai, anthropic, litellm, langchain (and LangGraph), llama_index, haystack, dspy, which the extra
    `ragpulse[instrument]` covers; bedrock, crewai, google_genai, groq, instructor, mistralai, openai_agents and
    smolagents, whose instrumentors are installed one by one. Raises ValueError for another name, and ImportError, with
    the line to install, for a named library whose instrumentor is missing.

        ragpulse.configure(service_name="helpdesk")
        ragpulse.instrument()
    """
    for name in names:
        if name not in LIBRARIES:
            nearest = "".join(f" did you mean {near!r}?" for near in get_close_matches(name, LIBRARIES, 1))
            raise ValueError(f"instrument() has no {name!r}:{nearest} It has {', '.join(LIBRARIES)}")
    left_out = disabled_instrumentations()
    chosen = names or tuple(name for name in LIBRARIES if name not in left_out)
    instrumented = tuple(name for name in chosen if _is_instrumented(name, required=bool(names)))
    if not instrumented:
        packages = {name: LIBRARIES[name].package for name in chosen}
        present = [name for name, package in packages.items() if _is_installed(package)]
        reasons = [_missing(name) for name in present] or [f"none of {', '.join(packages.values())} is installed"]
        logger.warning("ragpulse: instrument() records nothing: %s", "; ".join(reasons))
    return instrumented


def _is_instrumented(name: str, *, required: bool) -> bool:
    missing = _missing(name)
    if missing and required:
        raise ImportError(f"instrument({name!r}): {missing}")
    if not missing:
        _when_imported(LIBRARIES[name].package, lambda module: _instrument(name))
    elif _is_installed(LIBRARIES[name].package):
        logger.info("ragpulse: instrument() passes %s over, %s", name, missing)
    return not missing


def _missing(name: str) -> str:
    """What a library's calls cannot be recorded without, and how to install it; empty if nothing is missing."""
    library = LIBRARIES[name]
    if not _is_installed(library.package):
        distribution = _DISTRIBUTIONS.get(name, library.package.replace("_", "-").replace(".", "-"))
        return f"the package {library.package} is not installed: pip install {distribution}"
    if not _is_installed(f"openinference.instrumentation.{name}"):
        fix = f"pip install {library.install}" if library.install else INSTALL
        return f"the instrumentor of {name} is not installed: {fix}"
    return ""


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a parent package
        return False


def _when_imported(package: str, act: Callable[[Any], None]) -> None:
    """Acts when the application imports the package, which may take seconds, or at once where it did."""
    if sys.modules.get(package) is not None:
        act(None)
    else:
        import_module("wrapt").register_post_import_hook(act, package)  # every instrumentor needs wrapt


def _instrument(name: str) -> None:
    with GUARD.containing(f"instrument({name!r})"):
        instrumentor: Any = getattr(
            import_module(f"openinference.instrumentation.{name}"), LIBRARIES[name].instrumentor
        )()
        if not instrumentor.is_instrumented_by_opentelemetry:
            if name == "dspy":
                track_usage()
            instrumentor.instrument(tracer_provider=PROVIDER, **_OPTIONS.get(name, {}))


def run(arguments: Sequence[str]) -> int:
    """Runs a Python program as `python` would, recorded; returns 2 for a wrong call."""
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["-m"]:
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    return _run_module(arguments[1:]) if arguments[0] == "-m" else _run_file(arguments)


def _run_module(arguments: Sequence[str]) -> int:
    """As `python -m`."""
    import runpy

    sys.path.insert(0, "")
    if not _can_run(arguments[0]):
        return _refuse(f"there is no module {arguments[0]!r} to run with -m")
    _record(arguments[0])
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    return 0


def _can_run(module: str) -> bool:
    """Whether there is such a module, or a package with `__main__`; an error while a package is imported is raised."""
    if module.startswith("."):
        return False
    try:
        spec = find_spec(module)
        return spec is not None and (not spec.submodule_search_locations or find_spec(f"{module}.__main__") is not None)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            return False
        raise


def _run_file(arguments: Sequence[str]) -> int:
    """As `python FILE`; a program on the PATH is found, too."""
    import runpy
    import shutil

    path = arguments[0] if os.path.exists(arguments[0]) else shutil.which(arguments[0])
    if path is None:
        return _refuse(f"there is no program {arguments[0]!r}")
    if os.path.isfile(path) and Path(path).read_bytes()[:4] in _MACHINE_CODE:
        return _refuse(f"{path} is not a Python program")
    _record(Path(path).stem)
    sys.argv = [path, *arguments[1:]]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")
    return 0


def _record(name: str) -> None:
    if PROCESS.runtime is None:
        configure(service_name=os.environ.get("OTEL_SERVICE_NAME") or name)
    instrument()


def _refuse(reason: str) -> int:
    print(f"ragpulse: run: {reason}", file=sys.stderr)
    return 2
