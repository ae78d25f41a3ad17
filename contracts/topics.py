"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from typing import NamedTuple


class ServiceTopics(NamedTuple):
    """The topics of one service; a worker executes its `inputs` in their order."""

    commands: str
    inbox: str
    events: str
    answers: str
    state: str
    outcomes: str
    parked: str

    @property
    def inputs(self) -> tuple[str, str]:
        return self.inbox, self.commands


TOPICS = {
    "order": ServiceTopics(
        commands="order.commands",
        inbox="order.inbox",
        events="order.events",
        answers="order.answers",
        state="order.state",
        outcomes="order.outcomes",
        parked="order.parked",
    ),
    "inventory": ServiceTopics(
        commands="inventory.commands",
        inbox="inventory.inbox",
        events="inventory.events",
        answers="inventory.answers",
        state="inventory.state",
        outcomes="inventory.outcomes",
        parked="inventory.parked",
    ),
}

SERVICE_OF = {topic: service for service, own in TOPICS.items() for topic in own}
INBOXES = frozenset(own.inbox for own in TOPICS.values())
INPUTS = frozenset(topic for own in TOPICS.values() for topic in own.inputs)
