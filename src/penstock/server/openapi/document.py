"""OpenAPI 3.1 documents, made from the types that requests are read with and answers are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from penstock._version import __version__
from penstock.server.auth.gate import Needs

Json: TypeAlias = dict[str, Any]
_REFERENCE = "#/components/schemas/"
_SECURITY: Mapping[str, Json] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer KEY`"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_WHY: Mapping[int, str] = {
    400: "Something in the request does not fit; the message says what.",
    401: "No key, or one that is not good.",
    403: "A key that may not do this.",
    404: "There is nothing of this name.",
    409: "It cannot be done in the state that things are in.",
    413: "The request is too large.",
    422: "The `Idempotency-Key` was used for another request.",
    429: "Too many requests or tokens, or no money left.",
    499: "The request was cancelled.",
    500: "A fault of the gateway; its log says more.",
    502: "The provider failed.",
    503: "Not now: the gateway starts or stops, or the provider has too much to do.",
    504: "The provider was silent for too long.",
}


class Content(NamedTuple):
    """What one status brings."""

    status: int
    description: str
    types: Mapping[str, type | None]
    """By media type; None: text without a type of its own. None at all: there is no body."""


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    id: str
    summary: str
    needs: Needs
    answers: Sequence[Content]
    errors: Sequence[int]
    error: type
    """The shape of its failures."""
    path_type: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    body: type | None = None
    body_required: bool = True
    example: Mapping[str, Any] | None = None
    """A body that does something."""
    group: str = ""
    """What the names of its types begin with, where two doors have types of one name."""
    request_group: str = ""
    """The same of what it reads."""
    headers: Mapping[str, str] = {}
    """Headers that it reads, with their meaning."""
    extra: Mapping[str, type] = {}
    """Types that belong to it and that no media type can point to, by name."""


def document(title: str, description: str, operations: Iterable[Operation]) -> Json:
    """The whole document."""
    schemas = _Schemas()
    paths: dict[str, Json] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.found,
            "responses": schemas.failures,
            "securitySchemes": dict(_SECURITY),
        },
    }


class _Schemas:
    """The schemas of all types that were asked for, each once under a name of its own."""

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}
        self.failures: dict[str, Json] = {}

    def failure(self, status: int, kind: type) -> Json:
        """A reference to the failure of this status, in this shape."""
        name = f"{kind.__name__}{status}"
        if name not in self.failures:
            told = Content(status, _why(status), {"application/json": kind})
            self.failures[name] = _response(told, self, "")
        return {"$ref": f"#/components/responses/{name}"}

    def of(self, kind: type, group: str = "") -> Json:
        """The schema of a type, mostly a reference."""
        (schema,), components = msgspec.json.schema_components(
            [kind], ref_template=_REFERENCE + "{name}"
        )

        def named(name: str) -> str:
            # A private class of a module has a public schema; its door tells it from others.
            *modules, last = name.split(".")
            # Two of one name are told apart by the last word of their modules.
            module = modules[-1].rpartition("_")[2].capitalize() if modules else ""
            return group + module + last.lstrip("_")

        for name, each in components.items():
            new = named(name)
            made = _renamed(each, named)
            made["title"] = new
            if self.found.setdefault(new, made) != made:
                raise ValueError(f"two types are called {new!r}: give their doors other groups")
        return _renamed(schema, named)


def _renamed(value: Any, named: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _REFERENCE + named(each.removeprefix(_REFERENCE))
            if key == "$ref"
            else _renamed(each, named)
            for key, each in cast(Json, value).items()
        }
    if isinstance(value, list):
        return [_renamed(each, named) for each in cast(list[Any], value)]
    return value


def _operation(asked: Operation, schemas: _Schemas) -> Json:
    parameters = [
        *_parameters(asked.path_type, "path", schemas),
        *_parameters(asked.query, "query", schemas),
        *(
            {"name": name, "in": "header", "description": said, "schema": {"type": "string"}}
            for name, said in asked.headers.items()
        ),
    ]
    responses: dict[str, Json] = {}
    for answer in asked.answers:
        responses[str(answer.status)] = _response(answer, schemas, asked.group)
    for status in sorted(asked.errors):
        responses[str(status)] = schemas.failure(status, asked.error)
    made: Json = {"operationId": asked.id, "summary": asked.summary, "responses": responses}
    if parameters:
        made["parameters"] = parameters
    if asked.body is not None:
        content: Json = {"schema": schemas.of(asked.body, asked.request_group)}
        if asked.example is not None:
            content["example"] = dict(asked.example)
        made["requestBody"] = {
            "required": asked.body_required,
            "content": {"application/json": content},
        }
    if asked.needs != "nothing":
        keys: list[dict[str, list[str]]] = [{name: []} for name in _SECURITY]
        made["security"] = [*keys, {}] if asked.needs == "optional" else keys
    if asked.extra:
        made["x-event-data"] = {name: schemas.of(kind) for name, kind in asked.extra.items()}
    return made


def _parameters(kind: type[msgspec.Struct] | None, where: str, schemas: _Schemas) -> Iterable[Json]:
    if kind is None:
        return
    for field in msgspec.structs.fields(kind):
        schema = schemas.of(field.type)
        if not field.required and field.default is not msgspec.UNSET:
            schema = {**schema, "default": field.default}
        yield {
            "name": field.encode_name,
            "in": where,
            "required": field.required,
            "schema": schema,
        }


def _response(answer: Content, schemas: _Schemas, group: str) -> Json:
    made: Json = {"description": answer.description}
    made["headers"] = {
        "x-request-id": {"description": "Names this call.", "schema": {"type": "string"}}
    }
    if answer.types:
        made["content"] = {
            media: _untyped(media) if kind is None else {"schema": schemas.of(kind, group)}
            for media, kind in answer.types.items()
        }
    return made


def _untyped(media: str) -> Json:
    # A schema beside an event stream would be taken for that of each event.
    kinds = {"application/json": "object", "text/event-stream": None}
    kind = kinds.get(media, "string")
    return {} if kind is None else {"schema": {"type": kind}}


def _why(status: int) -> str:
    return _WHY.get(status) or HTTPStatus(status).phrase
