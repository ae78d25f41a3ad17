"""Kafka's users get new passwords and brokers new certificates under load: no command fails."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from contracts.kafka_address import secured
from infra.base.ports import HOST
from infra.identity.authority import Authority
from infra.log.rights import principals
from services.kernel.log import clients
from tests.e2e.load import load
from tests.e2e.shop import Shop

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LISTENERS = ("broker", "internal", "controller")


def certificates(shop: Shop) -> set[str]:
    return {ssl.get_server_certificate((HOST, shop.settings.port(name))) for name in LISTENERS}


def test_rotating_under_load_loses_nothing_and_ends_what_was_valid(shop: Shop, tmp_path: Path) -> None:
    authority = Authority(shop.settings.kafka_identities)
    stolen = tmp_path / "stolen.json"
    stolen.write_bytes(authority.identity("order-worker").read_bytes())
    before = certificates(shop)
    with load(shop.settings, tmp_path, "rotated"):
        authority.replace(authority.passwords(principals()))  # an interruption: no broker knows these
        assert "Restarted: order-worker" in shop.run("rotate")
    assert len(before) == len(certificates(shop)) == 1
    assert before.isdisjoint(certificates(shop))
    own = clients.admin(secured(shop.settings.bootstrap_of("broker"), stolen))
    with pytest.raises(KafkaException):
        own.list_topics(timeout=5)
    assert clients.admin(shop.settings.kafka_as("order-worker")).list_topics(timeout=30).topics
