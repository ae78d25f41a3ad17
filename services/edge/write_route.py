"""A FastAPI route that validates the body directly from its bytes.

The endpoint's signature is FastAPI's: the document is generated from it, and FastAPI's own route class serves
the same endpoint (a test compares both). This class resolves no dependencies and parses JSON once, in the
model's compiled validator (docs/adr/0006).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin

from fastapi import params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from services.edge.app import check_parameters
from services.edge.bodies import read_body


class WriteRoute(APIRoute):
    """Serves endpoints that take the request, one body, one model of headers, and path or query parameters."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        signature = _signature(endpoint)

        async def handle(request: Request) -> Response:
            raw = await read_body(request.receive)
            return await endpoint(**signature.arguments(request, raw))

        return handle


@dataclass
class _Signature:
    """An endpoint's parameters by their source; query parameters with their defaults."""

    request: str = ""
    body: tuple[str, type[BaseModel]] = ("", BaseModel)
    headers: tuple[str, type[BaseModel]] = ("", BaseModel)
    header_names: dict[bytes, str] = field(default_factory=dict)
    path: dict[str, TypeAdapter[Any]] = field(default_factory=dict)
    query: dict[str, tuple[TypeAdapter[Any], Any]] = field(default_factory=dict)

    def arguments(self, request: Request, raw: bytes) -> dict[str, Any]:
        """Returns the endpoint's arguments. Raises `RequestValidationError` or `Problem` in FastAPI's order: not
        JSON, unknown parameters, path, query, headers, body."""
        errors: list[Any] = []
        body_name, model = self.body
        arguments_: dict[str, Any] = {self.request: request}
        try:
            arguments_[body_name] = model.__pydantic_validator__.validate_json(raw)
        except ValidationError as error:
            errors = _located(error, "body")
            if not raw or errors[0]["type"] == "json_invalid":
                raise RequestValidationError(errors) from error
        if request.scope["query_string"]:
            check_parameters(request)
        try:
            for name, adapter in self.path.items():
                location: tuple[str, ...] = ("path", name)
                arguments_[name] = adapter.validate_python(request.path_params[name])
            for name, (adapter, default) in self.query.items():
                location = ("query", name)
                text = request.query_params.get(name) if request.scope["query_string"] else None
                arguments_[name] = default if text is None else adapter.validate_python(text)
            location = ("header",)
            name, headers = self.headers
            arguments_[name] = headers.__pydantic_validator__.validate_python(self._headers(request))
        except ValidationError as error:
            raise RequestValidationError(_located(error, *location)) from error
        if errors:
            raise RequestValidationError(errors)
        return arguments_

    def _headers(self, request: Request) -> Mapping[str, str]:
        names = self.header_names
        return {
            names[name]: value.decode("latin-1") for name, value in request.scope["headers"] if name in names
        }


def _located(error: ValidationError, *location: str) -> list[Any]:
    return [{**entry, "loc": (*location, *entry["loc"])} for entry in error.errors(include_url=False)]


def _signature(endpoint: Callable[..., Any]) -> _Signature:
    """Raises TypeError for a parameter that a write route does not support."""
    result = _Signature()
    for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
        annotation = parameter.annotation
        base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        mark = next((mark for mark in marks if isinstance(mark, params.Param)), None)
        match mark:
            case params.Header() if issubclass(base, BaseModel):
                result.headers = (name, base)
                aliases = (field.alias or name for name, field in base.model_fields.items())
                result.header_names = {alias.lower().encode(): alias for alias in aliases}
            case params.Path():
                result.path[name] = TypeAdapter(annotation)
            case params.Query():
                result.query[name] = (TypeAdapter(annotation), parameter.default)
            case None if base is Request:
                result.request = name
            case None if isinstance(base, type) and issubclass(base, BaseModel):
                result.body = (name, base)
            case _:
                raise TypeError(f"{endpoint.__qualname__}: {name} is not supported by a write route")
    return result
