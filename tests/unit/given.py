"""Given / when / then: a decider's rules as sentences, for unit tests.

`Spec(order_decider).given(placed, confirmed).when(ship) == [shipped]`
`Spec(order_decider).given(placed).refuses(ship) == "not_confirmed"`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from services.kernel.model.decider import Command, Decider, Event, Refused, State, fold


@dataclass(frozen=True)
class Given(Generic[Command, State, Event]):
    """A decider and the state that a history led to."""

    decider: Decider[Command, State, Event]
    state: State

    def when(self, command: Command) -> list[Event]:
        """The events that the command appends. Raises `Refused`."""
        return list(self.decider.decide(command, self.state))

    def refuses(self, command: Command) -> str:
        """The code of the refusal. Raises AssertionError where the command is accepted."""
        try:
            events = self.when(command)
        except Refused as refusal:
            return refusal.code
        raise AssertionError(f"accepted, with {events}")

    def after(self, *commands: Command) -> Given[Command, State, Event]:
        """The state after commands that are accepted one by one. Raises `Refused`."""
        given = self
        for command in commands:
            given = Given(self.decider, fold(self.decider, given.when(command), given.state))
        return given

    @property
    def status(self) -> str:
        return self.decider.status(self.state)


@dataclass(frozen=True)
class Spec(Generic[Command, State, Event]):
    """The rules under test."""

    decider: Decider[Command, State, Event]

    def given(self, *events: Event) -> Given[Command, State, Event]:
        """A history to begin with; none: nothing happened yet."""
        return Given(self.decider, fold(self.decider, events))
