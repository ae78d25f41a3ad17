"""The options of every connection are defined once and reach every kind of client under its own names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from services.kernel.log import clients
from services.kernel.log.clients import Connection

NOWHERE = "127.0.0.1:9"
QUIET = {"log_level": 0}


def test_a_connection_in_the_names_of_each_client() -> None:
    here = Connection("a:1,b:2")
    assert here.librdkafka() == {"bootstrap.servers": "a:1,b:2"}
    assert here.java() == {"bootstrap.servers": "a:1,b:2"}
    assert here.java("home.") == {"home.bootstrap.servers": "a:1,b:2"}
    assert here.spark() == {"kafka.bootstrap.servers": "a:1,b:2"}
    assert here.faust() == {"broker": "kafka://a:1,b:2"}


def test_a_mirror_connects_to_both_clusters() -> None:
    mirror = MirrorPlace(Path(), 1, "home", "away", "h:1", "a:2", ("order.events",))
    assert mirror_properties(mirror).startswith(
        "clusters = home, away\nhome.bootstrap.servers = h:1\naway.bootstrap.servers = a:2\n"
    )


def test_an_option_of_every_connection_reaches_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka refuses an unknown option, which proves that each client received it."""

    def insecure(self: Connection) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "daybook.planted": "yes"}

    makers: tuple[Callable[[], object], ...] = (
        lambda: clients.reader(NOWHERE, QUIET),
        lambda: clients.follower(NOWHERE, [TopicPartition("order.events", 0, 0)], QUIET),
        lambda: clients.writer(NOWHERE, QUIET),
        lambda: clients.admin(NOWHERE, QUIET),
    )
    for make in makers:
        make()
    monkeypatch.setattr(Connection, "librdkafka", insecure)
    for make in makers:
        with pytest.raises(KafkaException, match=r"daybook\.planted"):
            make()


def test_options_of_the_caller_win() -> None:
    with pytest.raises(KafkaException, match="idempotence"):
        clients.writer(NOWHERE, {"transactional.id": "a", "enable.idempotence": False, **QUIET})
