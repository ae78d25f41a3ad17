"""Offsets of the log: fixed once, so that every replay reads the same records."""

import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from confluent_kafka import KafkaException, TopicCollection

from analytics.errors import AnalyticsError
from contracts.kafka_address import bootstrap_of
from services.kernel.log import clients
from services.kernel.log.reader import NotCaughtUp, last_stable_offsets, partitions_by_topic, read_to_end

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset of the next record, exclusive."""


def flat(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of each partition."""
    return ((topic, number, offset) for topic, parts in offsets.items() for number, offset in parts.items())


REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
POLL_SECONDS = 0.2


class LogUnreachable(AnalyticsError):
    """The broker did not respond, or a topic does not exist."""


class AheadOfLog(AnalyticsError):
    """A reader's position lies beyond the log's end: it has read another log."""


class ReplayIncomplete(AnalyticsError):
    """A reader did not reach the fixed end of the log in time."""


def stable_ends(kafka: str, topics: Collection[str]) -> Offsets:
    """Returns the last stable offset of every partition. Raises LogUnreachable. Records of open transactions lie
    beyond it."""
    try:
        partitions = partitions_by_topic(kafka, REQUEST_SECONDS)
        if missing := [topic for topic in topics if topic not in partitions]:
            raise LogUnreachable(f"no topic {', '.join(missing)}: is DAYBOOK_KAFKA this shop's address?")
        return {
            topic: last_stable_offsets(kafka, topic, partitions[topic], REQUEST_SECONDS) for topic in topics
        }
    except KafkaException as error:
        raise LogUnreachable(f"the broker does not respond, check DAYBOOK_KAFKA, {kafka}: {error}") from error


def check_log(kafka: str, topics: Collection[str]) -> None:
    """Raises LogUnreachable, at once where nothing listens: a client would hope for the whole time of a request. A job
    asks before it starts Spark."""
    if not responds(bootstrap_of(kafka)):
        raise LogUnreachable(f"nothing listens at DAYBOOK_KAFKA, {bootstrap_of(kafka)}: `./daybook status`")
    stable_ends(kafka, topics)


def responds(addresses: str) -> bool:
    """Tells whether something listens at one of these addresses, `host:port` separated by commas."""
    for host, _, port in (address.rpartition(":") for address in addresses.split(",")):
        with suppress(OSError, ValueError):
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            return True
    return False


def topic_ids(kafka: str, topics: Iterable[str]) -> dict[str, str]:
    """Returns the id of each topic; it changes if the topic is deleted and created again. Raises LogUnreachable."""
    names = list(topics)
    try:
        admin = clients.admin(kafka)
        futures = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
        return {name: str(futures[name].result(REQUEST_SECONDS).topic_id) for name in names}
    except KafkaException as error:
        raise LogUnreachable(f"the broker names no topics, check DAYBOOK_KAFKA, {kafka}: {error}") from error


def check_within(ends: Offsets, positions: Mapping[str, Offsets]) -> None:
    """Raises AheadOfLog if a reader's position lies beyond the log's end."""
    for name, offsets in positions.items():
        for topic, number, offset in flat(offsets):
            end = ends.get(topic, {}).get(number, 0)
            if offset > end:
                raise AheadOfLog(
                    f"{name} is at {topic}/{number}/{offset}, but the log ends at {end}: "
                    "is it of another site? Check DAYBOOK_KAFKA"
                )


def wait_until_read(kafka: str, ends: Offsets, positions: Callable[[], Offsets], seconds: float) -> None:
    """Waits until a reader at `positions()` has read everything before `ends`. Raises ReplayIncomplete.

    After the last record there may be transaction markers, so a position may stay below the end. Then the log
    itself shows whether a record follows."""
    deadline = time.monotonic() + seconds
    while behind := _behind(kafka, ends, positions()):
        if time.monotonic() > deadline:
            where = ", ".join(f"{topic}/{number} at {at}" for topic, number, at in behind)
            raise ReplayIncomplete(f"not read within {seconds:.0f} s: {where}")
        time.sleep(POLL_SECONDS)


def _behind(kafka: str, ends: Offsets, positions: Offsets) -> list[tuple[str, int, int]]:
    behind = []
    for topic, number, end in flat(ends):
        position = positions.get(topic, {}).get(number, 0)
        if position < end and _record_follows(kafka, topic, number, position, end):
            behind.append((topic, number, position))
    return behind


def _record_follows(kafka: str, topic: str, number: int, position: int, end: int) -> bool:
    """Tells whether a committed record lies in [position, end)."""
    try:
        records = read_to_end(kafka, topic, {number: position}, {number: end}, timeout=REQUEST_SECONDS)
        return any(record.offset() < end for record in records)
    except (KafkaException, NotCaughtUp) as error:
        raise LogUnreachable(f"the broker does not respond, check DAYBOOK_KAFKA, {kafka}: {error}") from error
