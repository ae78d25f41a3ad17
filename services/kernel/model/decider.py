"""The decider: a business rule as a value. Standard library only."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from services.kernel import KernelError

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")


class Refused(KernelError):
    """A command is denied: nothing is appended. `code` is stable and public, `reason` is for people; `hides`: the
    sender may not know that there is such an entity."""

    def __init__(self, code: str, reason: str, *, hides: bool = False) -> None:
        super().__init__(f"{code}: {reason}")
        self.code, self.reason, self.hides = code, reason, hides


def forget_nothing(state: State, _version: int) -> State:
    return state


@dataclass(frozen=True)
class Decider(Generic[Command, State, Event]):
    """The rules of one aggregate.

    `decide(command, state)` returns the events to append (none: it is already so) or raises `Refused`;
    `evolve(state, event)` returns the next state and never refuses;
    `status(state)` names the state in one lower-case word, for outcomes;
    `forget(state, version)` drops what was kept only to recognise late repeats and was closed at or before
    `version`.
    """

    initial: State
    decide: Callable[[Command, State], Sequence[Event]]
    evolve: Callable[[State, Event], State]
    status: Callable[[State], str]
    forget: Callable[[State, int], State] = forget_nothing


def fold(
    decider: Decider[Command, State, Event], events: Iterable[Event], state: State | None = None
) -> State:
    """The state after `events`, from `state` (default: the initial one)."""
    return reduce(decider.evolve, events, decider.initial if state is None else state)
