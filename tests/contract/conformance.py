"""Compares an API's responses with its own document, for requests generated from that document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.python.asgi import shutdown_lifespans
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# The same examples in every run.
EXAMPLES = settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def started(app: FastAPI) -> Iterator[BaseSchema]:
    """The document of an application that is started, in this process."""
    try:
        yield schemathesis.openapi.from_asgi("/openapi.json", app)
    finally:
        shutdown_lifespans()


def statuses(
    schema: BaseSchema, path_parameters: Mapping[str, str] = MappingProxyType({}), *, failing: bool = False
) -> dict[str, set[int]]:
    """The statuses of each operation's responses to valid and invalid requests.

    Raises an error for a response that contradicts the document, or is a server error, unless the API is
    meant to be `failing`. `path_parameters` are those parameters of entities that exist.
    """
    checks = CHECKS if failing else [not_a_server_error, *CHECKS]
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        path = {
            parameter.name: path_parameters[parameter.name]
            for parameter in operation.path_parameters
            if path_parameters
        }
        strategies = [operation.as_strategy()]
        if operation.body or list(operation.iter_parameters()):  # else no request is invalid
            strategies.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        if path:
            strategies.append(operation.as_strategy(path_parameters=path))
        seen[operation.label] = set().union(*(_statuses(strategy, checks) for strategy in strategies))
    return seen


def _statuses(strategy: SearchStrategy[Case[Any]], checks: list[CheckFunction]) -> set[int]:
    seen: set[int] = set()

    @EXAMPLES
    @given(case=strategy)
    def conforms(case: Case[Any]) -> None:
        seen.add(case.call_and_validate(checks=checks).status_code)

    conforms()
    return seen
