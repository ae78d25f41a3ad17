"""How fast each principal may write and read: the quotas of `contracts/topics.yaml`, and those of the brokers.

A broker delays whoever is faster, on average over its window (11 s), and refuses nothing. librdkafka has no request for
quotas, so these two are stated here, for aiokafka (KIP-546; the broker's `AlterClientQuotasRequest.json`, version 0).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DescribeClientQuotasRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

from infra.base.errors import NotReady
from infra.log.rights import Quotas
from services.kernel.log.clients import Connection

_USER, _ANY_NAME = "user", 2
_ENTITY = Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))


class _AlteredV0(Response):  # type: ignore[misc] # aiokafka has no types
    API_KEY, API_VERSION = 49, 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("code", Int16), ("message", String("utf-8")), ("entity", _ENTITY))),
    )


class _AlterV0(RequestStruct):  # type: ignore[misc] # aiokafka has no types
    API_KEY, API_VERSION, RESPONSE_TYPE = 49, 0, _AlteredV0
    SCHEMA = Schema(
        (
            "entries",
            Array(
                ("entity", _ENTITY),
                ("ops", Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _Alter(Request[_AlterV0]):  # type: ignore[misc] # aiokafka has no types
    API_KEY = 49

    def __init__(self, changes: list[Any]) -> None:
        self._changes = changes

    def build(self, request_struct_class: type[_AlterV0]) -> _AlterV0:
        return request_struct_class(self._changes, False)


def apply_quotas(address: str, expected: Quotas) -> int:
    """Make the quotas of users those expected, and remove all others. Returns how many users it changed.

    `address` is that of a super user with a password. Raises NotReady if the brokers do not do it.
    """
    try:
        return asyncio.run(_apply(address, expected))
    except KafkaError as error:
        raise NotReady(f"the quotas of Kafka's users cannot be set: {error}") from error


async def _apply(address: str, expected: Quotas) -> int:
    client = AIOKafkaClient(**Connection(address).aiokafka())
    await client.bootstrap()
    try:
        actual = await _quotas(client)
        changes = [
            ([(_USER, user)], operations)
            for user in sorted({*expected, *actual})
            if (operations := _operations(expected.get(user, {}), actual.get(user, {})))
        ]
        if changes:
            for code, message, _ in (await _send(client, _Alter(changes))).entries:
                if code:
                    raise for_code(code)(message)
        return len(changes)
    finally:
        await client.close()


async def _quotas(client: AIOKafkaClient) -> Quotas:
    """Of users that have some. A user without a name is Kafka's default, which is not ours to change."""
    described = await _send(client, DescribeClientQuotasRequest([(_USER, _ANY_NAME, None)], True))
    if described.error_code:
        raise for_code(described.error_code)(described.error_message)
    return {entity[0][1]: dict(values) for entity, values in described.entries or () if entity[0][1]}


async def _send(client: AIOKafkaClient, request: Request[Any]) -> Any:
    """Any broker passes it on to the controller."""
    node = client.get_random_node()
    await client.ready(node)
    return await client.send(node, request)


def _operations(expected: Mapping[str, float], actual: Mapping[str, float]) -> list[tuple[str, float, bool]]:
    changed = [(name, value, False) for name, value in expected.items() if actual.get(name) != value]
    return changed + [(name, 0.0, True) for name in actual.keys() - expected.keys()]
