"""A route of FastAPI whose body goes from bytes into its model at once.

The endpoint's signature stays FastAPI's: the document is made from it, and FastAPI's own route class could
serve it alike (a test compares both). Ours solves no dependencies and parses JSON once, in the model's
compiled validator (docs/adr/0006).
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
    """For endpoints whose parameters are the request, one body, one model of headers, and simple ones."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        signature = _signature(endpoint)

        async def handle(request: Request) -> Response:
            raw = await read_body(request.receive)
            return await endpoint(**signature.arguments(request, raw))

        return handle


@dataclass
class _Signature:
    """An endpoint's parameters by where they come from; those of the query with their defaults."""

    request: str = ""
    body: tuple[str, type[BaseModel]] = ("", BaseModel)
    headers: tuple[str, type[BaseModel]] = ("", BaseModel)
    header_names: dict[bytes, str] = field(default_factory=dict)
    path: dict[str, TypeAdapter[Any]] = field(default_factory=dict)
    query: dict[str, tuple[TypeAdapter[Any], Any]] = field(default_factory=dict)

    def arguments(self, request: Request, raw: bytes) -> dict[str, Any]:
        """The endpoint's arguments. Raises `RequestValidationError` or `Problem`, in FastAPI's order: what is
        not JSON, unknown parameters, path, query, headers, body."""
        errors: list[Any] = []
        body_name, model = self.body
        found: dict[str, Any] = {self.request: request}
        try:
            found[body_name] = model.__pydantic_validator__.validate_json(raw)
        except ValidationError as error:
            errors = _placed(error, "body")
            if not raw or errors[0]["type"] == "json_invalid":
                raise RequestValidationError(errors) from error
        if request.scope["query_string"]:
            check_parameters(request)
        try:
            for name, adapter in self.path.items():
                place: tuple[str, ...] = ("path", name)
                found[name] = adapter.validate_python(request.path_params[name])
            for name, (adapter, default) in self.query.items():
                place = ("query", name)
                given = request.query_params.get(name) if request.scope["query_string"] else None
                found[name] = default if given is None else adapter.validate_python(given)
            place = ("header",)
            name, headers = self.headers
            found[name] = headers.__pydantic_validator__.validate_python(self._headers(request))
        except ValidationError as error:
            raise RequestValidationError(_placed(error, *place)) from error
        if errors:
            raise RequestValidationError(errors)
        return found

    def _headers(self, request: Request) -> Mapping[str, str]:
        names = self.header_names
        return {
            names[name]: value.decode("latin-1") for name, value in request.scope["headers"] if name in names
        }


def _placed(error: ValidationError, *place: str) -> list[Any]:
    return [{**each, "loc": (*place, *each["loc"])} for each in error.errors(include_url=False)]


def _signature(endpoint: Callable[..., Any]) -> _Signature:
    """Raises TypeError for a parameter that such a route cannot serve."""
    found = _Signature()
    for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
        annotation = parameter.annotation
        base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        mark = next((each for each in marks if isinstance(each, params.Param)), None)
        match mark:
            case params.Header() if issubclass(base, BaseModel):
                found.headers = (name, base)
                aliases = (field.alias or name for name, field in base.model_fields.items())
                found.header_names = {alias.lower().encode(): alias for alias in aliases}
            case params.Path():
                found.path[name] = TypeAdapter(annotation)
            case params.Query():
                found.query[name] = (TypeAdapter(annotation), parameter.default)
            case None if base is Request:
                found.request = name
            case None if isinstance(base, type) and issubclass(base, BaseModel):
                found.body = (name, base)
            case _:
                raise TypeError(f"{endpoint.__qualname__}: {name} is nothing that a write can take")
    return found
