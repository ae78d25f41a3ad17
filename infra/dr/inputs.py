"""Moving a running shop's workers from the commands to the inbox (ADR 20): two steps, each checked before."""

from __future__ import annotations

import time

from confluent_kafka import ConsumerGroupTopicPartitions, Message, TopicPartition

from contracts.topics import TOPICS
from infra.dr.draining import unconsumed
from infra.dr.steps import NotDone
from infra.log.control import write_inputs
from infra.log.topics import SERVICES
from services.kernel.log import clients
from services.kernel.log.control import read_control
from services.kernel.log.reader import high_watermarks, partitions_of
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import now_micros
from services.kernel.record.registry import topic_of

SECONDS = 30.0
# Within this time every worker that runs has read the record of the switch.
SETTLE_SECONDS = 5.0


def switch(bootstrap: str) -> None:
    """Workers write to the inbox from now on. Raises NotDone where a partition of an inbox has no reader yet."""
    if read_control(bootstrap).phase != "commands":
        return
    unread = [place for service in SERVICES for place in _unread(bootstrap, service)]
    if unread:
        raise NotDone(f"nobody reads {', '.join(unread)} yet: start every worker with this version first")
    write_inputs(bootstrap, "inbox")


def close(bootstrap: str) -> None:
    """Commands and outcomes of workers are parked on the command topics from now on.

    Raises NotDone before `switch`, and while such records still wait there.
    """
    control = read_control(bootstrap)
    if control.phase == "closed":
        return
    if control.inputs is None:
        raise NotDone("the workers have not moved to the inbox yet: `./daybook topics inputs switch`")
    passed = (now_micros() - control.inputs.recorded_at) / 1_000_000
    time.sleep(max(0.0, SETTLE_SECONDS - passed))
    for service in SERVICES:
        topic = TOPICS[service].commands
        ends = {topic: high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))}
        if left := sum(_is_from_a_worker(record) for record in unconsumed(bootstrap, service, ends)):
            raise NotDone(
                f"{left} records of workers still wait in {topic}: try again when they are executed"
            )
    write_inputs(bootstrap, "closed")


def _unread(bootstrap: str, service: str) -> list[str]:
    """The partitions of a service's inbox in which no worker has begun to read."""
    admin, inbox = clients.admin(bootstrap, {"log_level": 0}), TOPICS[service].inbox
    places = [TopicPartition(inbox, number) for number in partitions_of(bootstrap, inbox)]
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{service}-workers", places)])
    return [
        f"{at.topic}/{at.partition}"
        for future in asked.values()
        for at in future.result(SECONDS).topic_partitions
        if at.offset < 0
    ]


def _is_from_a_worker(record: Message) -> bool:
    """Kernel records among the commands are outcomes, and have no topic of their own."""
    try:
        return bool(topic_of(decode(record.value()).TYPE) != record.topic())
    except KeyError:
        return True
    except Undecodable:
        return False
