"""The catalogue on a real broker."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from contracts.kernel.records import SiteRole
from infra.base.waiting import wait_until
from infra.log.topics import CONTROL, Topic, catalogue, create_topics, drift, ensure_site, make_safe
from services.kernel.log.control import read_control
from services.kernel.log.reader import partitions_of
from tests.stack import own_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the catalogue's topics and nothing else."""
    with own_broker(tmp_path_factory.mktemp("topics")) as bootstrap:
        create_topics(bootstrap)
        yield bootstrap


def test_creating_again_creates_nothing(bootstrap: str) -> None:
    assert create_topics(bootstrap) == []


def test_a_new_inbox_has_as_many_partitions_as_the_existing_commands(bootstrap: str) -> None:
    """A shop of an earlier version may have been repartitioned."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics(["order.inbox", "order.commands"]).values():
        future.result(60)
    expected = catalogue()
    await_topics(bootstrap, {"order.commands": replace(expected["order.commands"], partitions=3)})
    await_topics(bootstrap, {name: expected[name] for name in ("order.commands", "order.inbox")})
    assert [len(partitions_of(bootstrap, name)) for name in ("order.inbox", "order.commands")] == [3, 3]
    for future in admin.delete_topics(["order.inbox", "order.commands"]).values():
        future.result(60)
    await_topics(bootstrap, expected)


def test_fresh_topics_do_not_drift(bootstrap: str) -> None:
    assert drift(bootstrap) == []


def test_a_setting_changed_by_hand_is_drift(bootstrap: str) -> None:
    expected = catalogue()["order.answers"].config()
    _set(bootstrap, "order.answers", {"retention.ms": "1000", "min.insync.replicas": "2"})
    try:
        retention = "order.answers has retention.ms=1000, the catalogue says 86400000"
        in_sync = "order.answers has min.insync.replicas=2, the catalogue says 1"
        _drift_becomes(bootstrap, {retention, in_sync})
    finally:
        _set(bootstrap, "order.answers", expected)
    _drift_becomes(bootstrap, set())


def test_startup_corrects_settings_that_could_lose_acknowledged_records(bootstrap: str) -> None:
    assert make_safe(bootstrap) == []
    _set(bootstrap, "order.events", {"unclean.leader.election.enable": "true", "min.insync.replicas": "2"})
    unclean = "order.events has unclean.leader.election.enable=true, the catalogue says false"
    in_sync = "order.events has min.insync.replicas=2, the catalogue says 1"
    _drift_becomes(bootstrap, {unclean, in_sync})
    assert set(make_safe(bootstrap)) == {unclean, in_sync}
    _drift_becomes(bootstrap, set())


def test_an_unlisted_topic_of_the_shop_is_drift(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = ["order.mistake", "somebody-elses"]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    try:
        _drift_becomes(bootstrap, {"order.mistake is not in the catalogue"})
    finally:
        for future in admin.delete_topics(names).values():
            future.result(60)
    _drift_becomes(bootstrap, set())


def test_partitions_replicas_and_absence_are_drift(bootstrap: str) -> None:
    expected = catalogue()
    events = replace(expected["order.events"], partitions=3, replication=2, cleanup="compact")
    absent = replace(expected["order.events"], name="order.absent")
    differences = drift(bootstrap, {**expected, "order.events": events, "order.absent": absent})
    assert "order.absent is missing" in differences
    assert "order.events has 2 partitions, the catalogue says 3" in differences
    assert "order.events has 1 replicas per partition, the catalogue says 2" in differences
    assert "order.events has cleanup.policy=delete, the catalogue says compact" in differences


def test_the_log_is_kept_for_ever_and_co_partitioned() -> None:
    topics = catalogue()
    for service in ("order", "inventory"):
        assert topics[f"{service}.events"].retention_ms == -1
        together = [
            topics[f"{service}.{kind}"] for kind in ("inbox", "commands", "events", "answers", "state")
        ]
        assert {topic.partitions for topic in together} == {2}
        assert topics[f"{service}.outcomes"].partitions == 4


def test_the_first_control_records_are_written_once(bootstrap: str) -> None:
    ensure_site(bootstrap)
    assert ensure_site(bootstrap, "elsewhere") == []
    control = read_control(bootstrap)
    assert control.role == SiteRole("home", "active", 1)
    assert set(control.layouts) == {"order", "inventory"}
    assert catalogue()[CONTROL].partitions == 1


def await_topics(bootstrap: str, expected: Mapping[str, Topic]) -> None:
    """A topic that was just deleted is in the way of its successor for a moment."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    calm = 0

    def there() -> bool:
        nonlocal calm
        create_topics(bootstrap, expected)
        calm = calm + 1 if expected.keys() <= admin.list_topics(timeout=30).topics.keys() else 0
        return calm == 10  # in a row

    wait_until(there, "the topics are there", 30)


def _set(bootstrap: str, topic: str, values: dict[str, str]) -> None:
    set_to = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in values.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def _drift_becomes(bootstrap: str, expected: set[str]) -> None:
    """Waits, because the broker confirms a change before its own metadata shows it."""
    what = f"the drift is {expected}"
    wait_until(lambda: set(drift(bootstrap)), what, 30, enough=expected.__eq__)
