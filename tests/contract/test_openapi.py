"""The OpenAPI documents of the three APIs: valid, complete, true in their examples, and kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from services.edge.app import openapi_document
from services.edge.problems import MEDIA_TYPE
from services.edge.settings import ApiSettings as InventorySettings
from services.inventory.api import create as inventory_app
from services.order.api import OrderApiSettings as OrderSettings
from services.order.api import create as order_app
from services.projection.api import query_app
from services.projection.engine.settings import QuerySettings

SNAPSHOTS = Path(__file__).parent / "openapi"
SECRET: dict[str, Any] = {"hash_key": "a key for tests alone"}
APPS: dict[str, Callable[[], FastAPI]] = {
    "order": lambda: order_app(OrderSettings(**SECRET)),
    "inventory": lambda: inventory_app(InventorySettings(**SECRET)),
    "query": lambda: query_app(QuerySettings()),
}
# what bounds a value: a parameter's schema has one of them
BOUNDS = {"pattern", "format", "enum", "const", "minimum"}


@cache
def document(name: str) -> dict[str, Any]:
    return openapi_document(APPS[name]())


class Operation(NamedTuple):
    name: str
    path: str
    method: str
    content: dict[str, Any]


def operations(name: str) -> Iterator[Operation]:
    for path, methods in document(name)["paths"].items():
        for method, content in methods.items():
            yield Operation(name, path, method, content)


EVERY = [
    pytest.param(operation, id=operation.content["operationId"])
    for name in APPS
    for operation in operations(name)
]


def violations(name: str, schema: dict[str, Any], value: Any) -> list[str]:
    """What contradicts a schema of the document."""
    whole = {**schema, "components": document(name)["components"]}
    return [error.message for error in OAS31Validator(whole).iter_errors(value)]


@pytest.mark.parametrize("name", APPS)
def test_the_document_equals_its_snapshot(name: str) -> None:
    # After a change that is meant: python -m tests.contract.openapi_snapshots
    assert document(name) == json.loads((SNAPSHOTS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", APPS)
def test_the_document_is_valid(name: str) -> None:
    validate(document(name), cls=OpenAPIV31SpecValidator)
    assert document(name)["openapi"].startswith("3.1.")


def test_operation_ids_are_unique() -> None:
    names = [operation.content["operationId"] for name in APPS for operation in operations(name)]
    assert len(names) == len(set(names)) == 14


@pytest.mark.parametrize("operation", EVERY)
def test_every_operation_is_described(operation: Operation) -> None:
    assert operation.content["summary"]
    assert operation.content["tags"]
    for status, response in operation.content["responses"].items():
        if status.startswith("2"):
            content = response["content"]["application/json"]
            assert violations(operation.name, content["schema"], content["example"]) == []
    if operation.method == "post":
        schema = operation.content["requestBody"]["content"]["application/json"]["schema"]
        body = document(operation.name)["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert body["examples"]
        assert [
            violation
            for example in body["examples"]
            for violation in violations(operation.name, schema, example)
        ] == []


@pytest.mark.parametrize("operation", EVERY)
def test_every_error_is_a_problem_whose_codes_are_listed(operation: Operation) -> None:
    errors = {code: response for code, response in operation.content["responses"].items() if code >= "400"}
    assert {"400", "405", "408", "421", "422", "429", "431", "500", "503"} <= set(errors)
    for status, response in errors.items():
        content = response["content"]
        assert list(content) == [MEDIA_TYPE]
        schema, examples = content[MEDIA_TYPE]["schema"], content[MEDIA_TYPE]["examples"]
        assert set(schema["properties"]["code"]["enum"]) == set(examples)
        for code, example in examples.items():
            assert violations(operation.name, schema, example["value"]) == []
            assert (example["value"]["code"], str(example["value"]["status"])) == (code, status)
            assert f"`{code}`" in response["description"]


@pytest.mark.parametrize("operation", EVERY)
def test_every_parameter_is_described_and_bounded(operation: Operation) -> None:
    for parameter in operation.content.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        assert parameter.get("description"), name
        for part in schema.get("anyOf", [schema]):
            # keywords beside anyOf apply to all of its parts
            assert part.get("type") == "null" or BOUNDS & {*part, *schema}, name


@pytest.mark.parametrize("name", APPS)
async def test_the_front_page_leads_to_all_other_pages(name: str) -> None:
    transport = httpx.ASGITransport(APPS[name]())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        front = await client.get("/")
        assert front.headers["content-type"] == "text/html; charset=utf-8"
        links = re.findall(r'href="([^"]+)"', front.text)
        assert {"/docs", "/openapi.json", "/health/ready"} <= set(links)
        page = (await client.get("/docs")).text
        loaded = re.findall(r'(?:href|src)="([^"]+)"', page)
        assert [link for link in [*links, *loaded] if not link.startswith("/")] == [], "it needs a network"
        for link in {*links, *loaded} - {"/health/ready"}:  # not started
            assert (await client.get(link)).status_code == 200, link
        assert (await client.get("/openapi.json")).json() == document(name)
