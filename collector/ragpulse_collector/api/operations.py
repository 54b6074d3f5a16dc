"""The operations of the API: each has a path, typed parameters, a scope and a function.

Over HTTP it is `/api/v1/<path>`; the pages and the demo call it by its name; `/openapi.json` describes it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, is_dataclass, replace
from functools import cached_property, reduce
from inspect import getdoc, signature
from operator import or_
from types import ModuleType
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

import anyio.to_thread
import orjson
from pydantic import TypeAdapter
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from ragpulse_collector.api.copies import Download
from ragpulse_collector.api.guard import ACTOR, GRANTED, require
from ragpulse_collector.api.http import MEDIA_TYPE, Problem, json_response, plain, refusal, unexpected
from ragpulse_collector.api.params import Caller, Named, Params, Values, is_params, model_of
from ragpulse_collector.interface import Command, Tool
from ragpulse_collector.refusals import Forbidden, Invalid, NotFound, Refusal
from ragpulse_collector.settings import BINDING, Scope
from ragpulse_collector.store import Store

F = TypeVar("F", bound=Callable[..., Any])
Services = Mapping[Any, Callable[[], Any]]
"""What a collector gives to its operations, by type; each is made at its first use."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Operation:
    """One operation of the API: a function. Before its `/` is what the collector gives, after it what a caller gives.

    A parameter of a class of parameters (`Filters`) stands for all of its fields; one of the type `Caller` is who asks.
    A text in the annotation of a parameter describes it.
    """

    name: str
    """Method and path below `/api/v1/`, as in `GET traces/{trace_id}`; `{name}` parts become parameters."""
    function: Callable[..., Any]
    """Called on a worker thread."""
    _: KW_ONLY
    slashes: bool = False
    """Whether the placeholder accepts slashes."""
    files: tuple[str, ...] = ()
    """The media types of answers that are files."""
    scope: Scope = "read"
    bound: bool = False
    """Whether keys that are bound to services or environments may call it: only where the answer holds theirs alone."""
    outside: Callable[[Any], None] | None = None
    """A check of requests from outside this process; raises Invalid."""
    command: Command | None = None
    """The command that asks it and prints the answer."""
    tools: tuple[Tool, ...] = ()
    """The tools of MCP that ask it."""
    services: Services = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def text(self) -> str:
        """The docstring after its first line, without what it raises."""
        return re.sub(r"Raises [^.]*\.\s*", "", getdoc(self.function) or "").partition("\n")[2].strip()

    @property
    def method(self) -> str:
        """The method of the request."""
        return self.name.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path below `/api/v1/`."""
        return self.name.partition(" ")[2]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The name as a regular expression."""
        return re.compile(
            _PLACEHOLDER.sub(rf"(?P<\1>{'.' if self.slashes else '[^/]'}+)", self.name) + r"\Z", re.DOTALL
        )

    @property
    def in_path(self) -> list[str]:
        """The parameters in the path."""
        return _PLACEHOLDER.findall(self.path)

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the JSON answer, None where it is a file."""
        choices = [kind for kind in get_args(self._types["return"]) or (self._types["return"],) if kind not in _FILES]
        return reduce(or_, choices) if choices else None

    @cached_property
    def _given(self) -> list[Any]:
        """The types of what the collector gives."""
        parameters = signature(self.function).parameters.values()
        return [self._types[one.name] for one in parameters if one.kind is one.POSITIONAL_ONLY]

    @cached_property
    def _asked(self) -> list[tuple[str, Any, Any]]:
        """The parameters of a caller: name, type and default."""
        parameters = signature(self.function).parameters.values()
        asked = [one for one in parameters if one.kind is not one.POSITIONAL_ONLY]
        return [(one.name, self._types[one.name], ... if one.default is one.empty else one.default) for one in asked]

    @cached_property
    def params(self) -> type[Params]:
        """The model of the parameters."""
        return model_of(self.function.__name__, self._asked)

    def run(self, params: Params) -> Any:
        """Call the function."""
        values = {
            name: params.caller if kind is Caller else params if is_params(kind) else getattr(params, name)
            for name, kind, _ in self._asked
        }
        return self.function(*(self.services[kind]() for kind in self._given), **values)

    def answer_to(self, params: Params) -> Any:
        """Check the names of metrics and evaluators in the parameters, and run."""
        named = params.named()
        if named and CheckNames in self.services:
            self.services[CheckNames]()(named, params.caller)
        answer = self.run(params)
        if params.caller.binding:
            params.check_binding(self.services[Store]())
        return answer


def operation(
    name: str, *, command: str | Command | None = None, tool: str | None = None, **options: Any
) -> Callable[[F], F]:
    """Declare a function as an operation; the options are those of `Operation`. Several make several operations.

    `command` and `tool` are the names under which the command line and MCP ask it.
    """
    if tool:
        options["tools"] = (Tool(tool),)

    def declare(function: F) -> F:
        declared = getattr(function, "operations", ())
        shown = Command(command) if isinstance(command, str) else command
        function.__dict__["operations"] = (Operation(name, function, command=shown, **options), *declared)
        return function

    return declare


def declared(module: ModuleType) -> Iterator[Operation]:
    """Yield the operations that the functions of a module declare, in their order."""
    for function in vars(module).values():
        if getattr(function, "__module__", "") == module.__name__:
            yield from getattr(function, "operations", ())


class CheckNames(Protocol):
    """Checks names of metrics and evaluators on the worker thread: an empty answer would look like a good one."""

    def __call__(self, named: Sequence[Named], caller: Caller) -> None:
        """Raise Invalid for an unknown name."""
        ...


class Operations:
    """The table of operations; a value, built once by the app."""

    def __init__(self, operations: Iterable[Operation], services: Services | None = None) -> None:
        self._operations = tuple(replace(one, services=services or one.services) for one in operations)
        self._patterns = [(operation, operation.pattern) for operation in self._operations]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    async def call(self, operation: str, params: Values, caller: Caller | None = None) -> Any:
        """Run `"GET traces/abc"` and return its answer; raises Refusal."""
        for candidate, pattern in self._patterns:
            if match := pattern.match(operation):
                answer = await perform(candidate, {**params, **match.groupdict()}, caller)
                return answer if is_dataclass(answer) or isinstance(answer, Download) else plain(answer)
        raise NotFound(f"no operation {operation!r}")


_FILES = (Download, Response)


async def perform(operation: Operation, values: Values, caller: Caller | None = None) -> Any:
    """Read the parameters and run an operation off the event loop; every error that is no bug becomes a Refusal.

    `caller` is None within this process; the pages and HTTP have one.
    """
    if caller is not None and caller.binding is not None and not operation.bound:
        raise Forbidden(f"the key {caller.actor!r} is bound to services or environments: not for {operation.path}")
    params = operation.params.parse(values, caller)
    try:
        if caller is not None and operation.outside is not None:
            operation.outside(params)
        return await anyio.to_thread.run_sync(operation.answer_to, params)
    except Refusal:
        raise
    except Exception as error:
        known = unexpected(error)
        if known.status == 500:
            raise
        raise known from error


MAX_JSON_BYTES = 8 * 1024 * 1024


def routes(operations: Operations) -> list[BaseRoute]:
    """Return one Starlette route for each path, with all its methods; others get 405 with `Allow`."""
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    return [
        Route(
            f"/api/v1/{path.replace('}', ':path}') if any(one.slashes for one in by_method.values()) else path}",
            _endpoint(by_method),
            methods=list(by_method),
            name=path,
        )
        for path, by_method in by_path.items()
    ]


def _endpoint(by_method: Mapping[str, Operation]) -> Any:
    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        try:
            require(operation.scope, request.scope.get(GRANTED, frozenset()), name=request.scope.get(ACTOR))
            accept, binding = request.headers.get("accept", ""), request.scope.get(BINDING)
            caller = Caller(request.scope.get(ACTOR) or "api", accept, binding)
            query = {key: request.query_params.getlist(key) for key in request.query_params}
            values: dict[str, Any] = {key: texts[0] if len(texts) == 1 else texts for key, texts in query.items()}
            if request.method in ("POST", "PUT"):
                values |= await _json_body(request)
            answer = await perform(operation, values | request.path_params, caller)
            if isinstance(answer, Download):
                return FileResponse(
                    answer.path,
                    media_type=answer.media_type,
                    filename=answer.path.name,
                    background=BackgroundTask(answer.discard),
                )
            return answer if isinstance(answer, Response) else json_response(answer)
        except Refusal as error:
            return refusal(request, error)

    return endpoint


async def _json_body(request: Request) -> Values:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise Refusal(f"the body is larger than {MAX_JSON_BYTES} bytes", status=413)
    if not body and content_type in ("", "application/json"):
        return {}
    if content_type != "application/json":
        raise Refusal("send JSON with Content-Type: application/json", status=415)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"the body is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Invalid("the body must be a JSON object")
    return parsed


Schema = dict[str, Any]
"""A part of an OpenAPI document."""
_REF = "#/components/schemas/{model}"
_ERRORS = {
    "400": "A parameter is wrong or unknown.",
    "401": "A key is needed.",
    "403": "The key lacks the scope, or the request comes from another site.",
    "404": "It does not exist.",
    "409": "The state does not allow it.",
    "413": "The body is too large.",
    "503": "The store is busy; try again after the seconds of `Retry-After`.",
}


def document(operations: Iterable[Operation], version: str, *, root: str = "") -> Schema:
    """Return an OpenAPI 3.1 document of the JSON API, hosted below `root`."""
    definitions: Schema = {}
    _answer(Problem, definitions)
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(f"/api/v1/{operation.path}", {})[operation.method.lower()] = _operation(operation, definitions)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragpulse collector", "version": version},
        "servers": [{"url": root or "/"}],
        "components": {
            "schemas": definitions,
            "responses": {code: _refusal(text) for code, text in _ERRORS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": paths,
    }


def _refusal(description: str) -> Schema:
    schema = {"$ref": _REF.format(model=Problem.__name__)}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


def _operation(operation: Operation, definitions: Schema) -> Schema:
    schemas = properties(operation.params, definitions)
    required = operation.params.model_json_schema().get("required", [])
    in_query = operation.method in ("GET", "DELETE")
    rest = {name: schema for name, schema in schemas.items() if name not in operation.in_path}
    parameters = [_parameter(name, "path", schemas[name], required=True) for name in operation.in_path]
    if in_query:
        parameters += [_parameter(name, "query", schema, required=name in required) for name, schema in rest.items()]
    entry: Schema = {
        "operationId": "_".join((operation.method.lower(), *re.findall(r"\w+", operation.path))),
        "summary": operation.summary,
        "description": f"Needs the scope `{operation.scope}`.",
        "tags": [operation.path.partition("/")[0]],
        "parameters": parameters,
        "responses": {"200": {"description": "The answer.", "content": _content(operation, definitions)}}
        | {code: {"$ref": f"#/components/responses/{code}"} for code in _ERRORS},
    }
    if rest and not in_query:
        in_body = [name for name in rest if name in required]
        schema = {"type": "object", "properties": rest, "additionalProperties": False}
        schema |= {"required": in_body} if in_body else {}
        entry["requestBody"] = {"required": bool(in_body), "content": {"application/json": {"schema": schema}}}
    return entry


def properties(params: type[Params], definitions: Schema | None = None) -> dict[str, Schema]:
    """Return the schema of each parameter, and add their references to the definitions."""
    schema = params.model_json_schema(ref_template=_REF)
    if definitions is not None:
        definitions |= schema.get("$defs", {})
    return {name: _not_null(value) for name, value in schema.get("properties", {}).items()}


def _not_null(schema: Schema) -> Schema:
    """Return the schema without null: a parameter without a value is absent."""
    rest = {key: value for key, value in schema.items() if key != "title" and (key, value) != ("default", None)}
    choices = [choice for choice in rest.pop("anyOf", []) if choice != {"type": "null"}]
    return (choices[0] | rest) if len(choices) == 1 else rest | ({"anyOf": choices} if choices else {})


def _parameter(name: str, location: str, schema: Schema, *, required: bool) -> Schema:
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": location, "required": required, **description, "schema": schema}


def _content(operation: Operation, definitions: Schema) -> Schema:
    content = {media: {"schema": {"type": "string", "format": "binary"}} for media in operation.files}
    if operation.answer is None:
        return content
    return {"application/json": {"schema": _answer(operation.answer, definitions)}, **content}


def _answer(kind: Any, definitions: Schema) -> Schema:
    """Return a reference to the schema of an answer, and add the schema to the definitions."""
    choices = get_args(kind)
    if choices:
        return {"anyOf": [_answer(choice, definitions) for choice in choices]}
    schema = TypeAdapter(kind).json_schema(ref_template=_REF, mode="serialization")
    definitions |= schema.pop("$defs", {})
    definitions[kind.__name__] = schema
    return {"$ref": _REF.format(model=kind.__name__)}
