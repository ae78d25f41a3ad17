"""OpenAPI documents from msgspec Structs, and pages to read them offline.

Version 3.0.3: the bundled Swagger UI shows no newer one. JSON Schema's way of saying "or null" and
"examples" is put into that version's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from swagger_ui_bundle import swagger_ui_path

from services.edge.http import without_parameters

_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="/docs/swagger-ui.css"><link rel="icon" href="/docs/favicon-32x32.png">
</head>
<body><div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({{url: "/openapi.json", dom_id: "#api", deepLinking: true, validatorUrl: null}})
</script>
</body></html>
"""


class ProblemDocument(msgspec.Struct, rename={"kind": "type"}):
    """RFC 9457, `application/problem+json`. Branch on `code`; `field` names what a 422 is about."""

    kind: str
    title: str
    status: int
    code: str
    detail: str = ""
    field: str = ""


@dataclass(frozen=True)
class Parameter:
    """`where`: path, query or header. `schema` as OpenAPI 3.0 has it."""

    name: str
    where: str
    about: str
    schema: Mapping[str, Any]
    required: bool = False
    example: Any = None


@dataclass(frozen=True)
class Reply:
    """One status of an operation; `body` is a Struct, a list of them, or None; `headers` name → meaning."""

    about: str
    body: Any = None
    example: Any = None
    headers: Mapping[str, str] | None = None
    media_type: str = "application/json"


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    replies: Mapping[int, Reply]
    parameters: Sequence[Parameter] = ()
    body: Any = None
    example: Any = None
    about: str = ""


def refusal(about: str, status: int, code: str, **members: Any) -> Reply:
    """A problem as a reply, with an example that bears `code`."""
    example = {
        "type": f"urn:daybook:problem:{code}",
        "title": about,
        "status": status,
        "code": code,
        **members,
    }
    return Reply(about, ProblemDocument, example, media_type="application/problem+json")


# What any operation may answer before its route is asked; and what one with a body may.
EDGE = {
    400: refusal("Not HTTP/1.1; or no Host, or several (`malformed_host`)", 400, "malformed_request"),
    408: refusal("The request did not come in time; the connection is closed", 408, "request_timeout"),
    421: refusal("The process does not answer for this Host", 421, "wrong_host"),
    429: refusal("The address has as many connections as it may have", 429, "too_many_connections"),
    431: refusal("Request line and headers have more than 32 KiB", 431, "headers_too_large"),
}
EDGE_OF_BODIES = {
    403: refusal("A page of another site may not change anything", 403, "cross_site"),
    413: refusal("The body has more than 1 MiB", 413, "body_too_large"),
    415: refusal("The body is not application/json in UTF-8", 415, "unsupported_media_type"),
}


def document(title: str, about: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole OpenAPI document."""
    bodies: list[Any] = [operation.body for operation in operations if operation.body is not None]
    bodies += [
        reply.body
        for operation in operations
        for reply in (*operation.replies.values(), *EDGE.values())
        if reply.body is not None
    ]
    types = list({repr(body): body for body in bodies}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named = {repr(body): _as_3_0(schema) for body, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, named)
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": "1", "description": about},
        "paths": paths,
        "components": {
            "schemas": {name: _as_3_0(schema) for name, schema in sorted(components.items())},
            "responses": {
                str(status): _reply(reply, named) for status, reply in sorted((EDGE | EDGE_OF_BODIES).items())
            },
        },
    }


def _operation(operation: Operation, named: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary}
    if operation.about:
        described["description"] = operation.about
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        content = {"application/json": {"schema": named[repr(operation.body)], "example": operation.example}}
        described["requestBody"] = {"required": True, "content": content}
    edge = {**EDGE, **(EDGE_OF_BODIES if operation.body is not None else {})}
    replies: dict[int, Any] = {status: _reply(reply, named) for status, reply in operation.replies.items()}
    replies |= {status: {"$ref": f"#/components/responses/{status}"} for status in edge}
    described["responses"] = {str(status): reply for status, reply in sorted(replies.items())}
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.about,
        "required": parameter.required or parameter.where == "path",
        "schema": dict(parameter.schema),
    }
    return described if parameter.example is None else described | {"example": parameter.example}


def _reply(reply: Reply, named: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": reply.about}
    if reply.headers:
        described["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in reply.headers.items()
        }
    if reply.body is not None:
        content: dict[str, Any] = {"schema": named[repr(reply.body)]}
        if reply.example is not None:
            content["example"] = reply.example
        described["content"] = {reply.media_type: content}
    return described


def _as_3_0(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_as_3_0(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    told = {
        name: _as_3_0(part) for name, part in schema.items() if name not in ("examples", "anyOf", "const")
    }
    if schema.get("examples"):
        told["example"] = schema["examples"][0]
    if "const" in schema:
        told["enum"] = [schema["const"]]
    options = [_as_3_0(option) for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) < len(schema.get("anyOf", ())):
        told["nullable"] = True
    if len(options) == 1:
        told |= {"allOf": options} if "$ref" in options[0] else options[0]
    elif options:
        told["anyOf"] = options
    return told


def documentation(described: Mapping[str, Any]) -> Sequence[BaseRoute]:
    """`/openapi.json` and `/docs`, without any network."""
    body = msgspec.json.encode(described)
    page = _PAGE.format(title=escape(described["info"]["title"]))

    async def openapi(_: Request) -> Response:
        return Response(body, media_type="application/json")

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    async def asset(request: Request) -> Response:
        return FileResponse(str(swagger_ui_path / request.url.path.rpartition("/")[2]))

    pages = {"/openapi.json": openapi, "/docs": docs, **{f"/docs/{name}": asset for name in _ASSETS}}
    return [Route(path, without_parameters(endpoint)) for path, endpoint in pages.items()]
