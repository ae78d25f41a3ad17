"""Settings that an acknowledged record rests on: set right at every start, and read back."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from infra.base.errors import DaybookError
from infra.base.waiting import wait_until
from infra.log.topics import Topic, catalogue, settings_in_force, unequal
from services.kernel.log import clients

SAFETY = ("min.insync.replicas", "unclean.leader.election.enable")
SECONDS = 30.0


class Unsafe(DaybookError):
    """The broker keeps a setting otherwise; the text says which."""


def make_safe(bootstrap: str, wanted: Mapping[str, Topic] | None = None) -> list[str]:
    """Answers what was wrong and is right now, in words. All topics of `wanted` (default: the catalogue) must
    exist.

    Raises Unsafe, KafkaException.
    """
    admin, topics = clients.admin(bootstrap), catalogue() if wanted is None else wanted
    wrong = _wrong(admin, topics)
    for name in wrong:
        _set_right(admin, topics[name])
    wait_until(
        lambda: _wrong(admin, {name: topics[name] for name in wrong}),
        "the broker applies the settings",
        SECONDS,
        enough=lambda left: not left,
        error=lambda late: Unsafe("; ".join(line for lines in late.last.values() for line in lines)),
    )
    return [line for lines in wrong.values() for line in lines]


def _wrong(admin: AdminClient, topics: Mapping[str, Topic]) -> dict[str, list[str]]:
    settings = settings_in_force(admin, topics.values())
    found = {topic.name: list(unequal(topic, settings[topic.name], SAFETY)) for topic in topics.values()}
    return {name: lines for name, lines in found.items() if lines}


def _set_right(admin: AdminClient, topic: Topic) -> None:
    wanted = [
        ConfigEntry(name, topic.config()[name], incremental_operation=AlterConfigOpType.SET)
        for name in SAFETY
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=wanted)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)
