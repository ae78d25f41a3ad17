"""The two inputs of a service: `<service>.inbox`, which only workers write, and `<service>.commands`."""

from __future__ import annotations

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["commands", "inbox", "closed"]
"""How far a site's workers have moved from writing to the commands to writing to the inbox (ADR 20)."""

INBOX, COMMANDS = "inbox", "commands"


def inbox_of(service: str) -> str:
    return f"{service}.{INBOX}"


def commands_of(service: str) -> str:
    return f"{service}.{COMMANDS}"


def outcomes_of(service: str) -> str:
    return f"{service}.outcomes"


def inputs_of(service: str) -> tuple[str, str]:
    """The inbox, then the commands: the order in which a worker executes them."""
    return inbox_of(service), commands_of(service)


def is_input(topic: str) -> bool:
    return topic.rpartition(".")[2] in (INBOX, COMMANDS)


def is_inbox(topic: str) -> bool:
    return topic.rpartition(".")[2] == INBOX


def service_of(topic: str) -> str:
    return topic.partition(".")[0]
