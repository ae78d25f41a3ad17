"""Questions about a service's topics, answered by the catalogue; and how far its workers have moved to the inbox."""

from __future__ import annotations

from typing import Literal, TypeAlias

from contracts.topics import INPUTS, SERVICE_OF, TOPICS

Phase: TypeAlias = Literal["commands", "inbox", "closed"]
"""How far a site's workers have moved from writing to the commands to writing to the inbox (ADR 20)."""


def inbox_of(service: str) -> str:
    return TOPICS[service].inbox


def commands_of(service: str) -> str:
    return TOPICS[service].commands


def inputs_of(service: str) -> tuple[str, str]:
    """The inbox, then the commands: the order in which a worker executes them."""
    return TOPICS[service].inputs


def is_input(topic: str) -> bool:
    return topic in INPUTS


def is_inbox(topic: str) -> bool:
    return any(topic == own.inbox for own in TOPICS.values())


def service_of(topic: str) -> str:
    return SERVICE_OF[topic]
