"""The documents of the three APIs: what clients were told is kept, and the examples are true."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.inventory import openapi as inventory
from services.order import openapi as order
from services.projection.openapi import DOCUMENT

SNAPSHOTS = Path(__file__).parent / "openapi"
DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "order": order.described,
    "inventory": inventory.described,
    "query": lambda: dict(DOCUMENT),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_as_it_was(name: str) -> None:
    # After a change that is meant: python -m tests.contract.openapi_snapshots
    assert DOCUMENTS[name]() == json.loads((SNAPSHOTS / f"{name}.json").read_text())


@pytest.mark.parametrize("examples", [order.EXAMPLES, inventory.EXAMPLES])
def test_the_examples_are_valid(examples: dict[type, Any]) -> None:
    for body, example in examples.items():
        msgspec.json.decode(msgspec.json.encode(example), type=body)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_reference_has_its_schema(name: str) -> None:
    document = DOCUMENTS[name]()
    text = json.dumps(document)
    known = {
        f'"#/components/{kind}/{name}"' for kind, named in document["components"].items() for name in named
    }
    assert {part.split("}")[0] for part in text.split('"$ref": ')[1:]} <= known
    assert document["openapi"] == "3.0.3"
    assert '"null"' not in text
