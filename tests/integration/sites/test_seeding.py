"""A mirror that is told where to begin begins there: nothing is copied twice, nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from infra.dr.mirror import TAIL, last_data, mirror_positions, reset_internal, seed
from infra.stack.embedded.child import Child
from infra.stack.embedded.kafka import prepare_mirror
from infra.stack.mirror_settings import MirrorPlace, positions_topic
from services.kernel.log.reader import partitions_of, read_to_end
from tests.ports import free_ports

TOPIC = "letters"
OLD, NEW = [f"old-{number}" for number in range(30)], [f"new-{number}" for number in range(20)]


def write(bootstrap: str, letters: list[str], name: str, *, commit: bool = True) -> None:
    """In two partitions, in one transaction of `name`: its marker stands behind the last record."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, letter in enumerate(letters):
        producer.produce(TOPIC, letter, letter, partition=number % 2)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def read(bootstrap: str) -> list[list[str]]:
    """The letters of each partition, in order."""
    return [
        [record.value().decode() for record in read_to_end(bootstrap, TOPIC, {number: 0})]
        for number in partitions_of(bootstrap, TOPIC)
    ]


@pytest.fixture
def letters(two_brokers: tuple[str, str]) -> tuple[str, str]:
    """Both brokers have the old letters, at different offsets."""
    source, target = two_brokers
    for bootstrap in (source, target):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    write(source, ["gone"] * 5, "writer", commit=False)
    write(source, OLD, "writer")
    write(source, ["gone"] * 5, "writer", commit=False)
    write(target, OLD, "writer")
    return source, target


@pytest.fixture
def mirror(letters: tuple[str, str], tmp_path: Path) -> MirrorPlace:
    source, target = letters
    return MirrorPlace(tmp_path / "mirror", free_ports(1)[0], "one", "two", source, target, [TOPIC])


@pytest.fixture
def start_mirror() -> Iterator[list[Child]]:
    """A list: what a test puts there is killed at its end."""
    started: list[Child] = []
    yield started
    for child in started:
        child.kill()


def test_the_last_record_is_found_behind_many_aborted_ones(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in (TOPIC, "no-letters")]).values():
        future.result(30)
    write(kafka, ["gone"] * 5, "writer", commit=False)
    assert last_data(kafka, [TOPIC, "no-letters"]) == {}
    write(kafka, OLD, "writer")
    before = last_data(kafka, [TOPIC, "no-letters"])
    assert before == {(TOPIC, number): 4 - number + len(OLD) // 2 - 1 for number in (0, 1)}
    write(kafka, ["gone"] * 5 * TAIL, "writer", commit=False)
    assert last_data(kafka, [TOPIC, "no-letters"]) == before


@pytest.mark.full
def test_a_seeded_mirror_copies_only_what_is_new(mirror: MirrorPlace, start_mirror: list[Child]) -> None:
    source, target = mirror.source_bootstrap, mirror.target_bootstrap
    before = last_data(source, [TOPIC])
    assert before.keys() == {(TOPIC, 0), (TOPIC, 1)}
    ends = [max(record.offset() for record in read_to_end(source, TOPIC, {number: 0})) for number in (0, 1)]
    assert [before[TOPIC, number] for number in (0, 1)] == ends

    # what an earlier mirror left behind is forgotten
    seed(target, "one", {(TOPIC, 0): 0})
    assert reset_internal(target, "one") == [positions_topic("one")]
    assert reset_internal(target, "one") == []
    seed(target, "one", before)
    assert mirror_positions(target, "one") == before

    start_mirror.append(Child(prepare_mirror(mirror), mirror.folder / "mirror.log"))
    write(source, NEW, "writer")
    start_mirror[0].wait_until(lambda: mirror_positions(target, "one") == last_data(source, [TOPIC]), 120)
    assert read(target) == read(source) == [(OLD + NEW)[0::2], (OLD + NEW)[1::2]]
