"""Process managers: the commands that one aggregate sends to others; and an aggregate as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Generic, NamedTuple

from services.kernel.model.decider import Command, Decider, Event, State


class OutgoingCommand(NamedTuple):
    """A command for another aggregate (or, as a deadline, for the same one).

    `id` can be computed again from the asker's state; `tag` comes back in the outcome.
    """

    id: str
    key: str
    command: Any
    tag: str = ""


_VARIANTS = {digit: "89ab"[int(digit, 16) & 0b11] for digit in "0123456789abcdef"}


def derived_id(namespace: bytes, name: str) -> str:
    """UUIDv5 (RFC 9562) of a name: the same as `str(uuid.uuid5(…))` in a third of the time; an order
    sends dozens of commands."""
    digits = sha1(namespace + name.encode(), usedforsecurity=False).hexdigest()
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


@dataclass(frozen=True)
class Reply:
    """An outcome as a process manager sees it: of which command to which entity, and whether it was accepted."""

    command_type: str
    subject: str
    tag: str
    accepted: bool
    code: str


def _nothing(*_: Any) -> Sequence[OutgoingCommand]:
    return ()


def _refuse_outcomes(key: str, outcomes: Sequence[Reply]) -> Sequence[Any]:
    raise ValueError(f"{key} sends no commands, and got {len(outcomes)} outcomes")


def _no_deadline(_state: Any) -> None:
    return None


def _never_expires(key: str, _now: int) -> Any:
    raise ValueError(f"{key} does not expire")


def _as_pending(_state: Any) -> Any:
    """Marks a default that is derived from `pending`."""
    raise NotImplementedError


@dataclass(frozen=True)
class Process(Generic[State, Event]):
    """What one aggregate wants of others, pure. By default it wants nothing: state what differs.

    `react(event, state)`: the commands to send after `event` led to `state`;
    `pending(state)`: every command whose outcome is not yet an event of the sender;
    `record(key, outcomes)`: the command that records outcomes in the asker's stream (a list: at most two);
    `deadline(state)`: when (micros UTC, recorded time) the conversation gives up, or None;
    `expire(key, now)`: the command that gives it up;
    `is_open(state)`: whether anything is pending; it must be cheap, because it is called after every event.

    At a takeover the logs of two services may be cut at different points: neither knows what the other has.
    `again(event, state, epoch)`: the commands that an event of the recent past leads to, completed or not; `state` is
    the current one; `claims(state)`: everything that the state needs of others (default: what is pending). Asking
    twice changes nothing.
    """

    react: Callable[[Event, State], Sequence[OutgoingCommand]] = _nothing
    pending: Callable[[State], Sequence[OutgoingCommand]] = _nothing
    record: Callable[[str, Sequence[Reply]], Sequence[Any]] = _refuse_outcomes
    deadline: Callable[[State], int | None] = _no_deadline
    expire: Callable[[str, int], Any] = _never_expires
    is_open: Callable[[State], bool] = _as_pending
    again: Callable[[Event, State, int], Sequence[OutgoingCommand]] = _nothing
    claims: Callable[[State], Sequence[OutgoingCommand]] = _as_pending

    def __post_init__(self) -> None:
        if self.is_open is _as_pending:
            pending = self.pending
            object.__setattr__(self, "is_open", lambda state: bool(pending(state)))
        if self.claims is _as_pending:
            object.__setattr__(self, "claims", self.pending)


@dataclass(frozen=True)
class Aggregate(Generic[Command, State, Event]):
    """What a worker runs. `name` gives the topics (`<name>.commands`, `<name>.events` …); `states` are all
    classes that `State` may be."""

    name: str
    decider: Decider[Command, State, Event]
    process: Process[State, Event]
    states: Sequence[type]
