"""The invariants over the raw log, each with the name it has in docs/reference/guarantees.md. Pure: evidence in,
violations out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from infra.lab.checker.conversations import conversations_end, money_is_conserved, stock_adds_up
from infra.lab.checker.evidence import Acknowledged, Evidence, Recorded
from infra.lab.checker.pairing import causes_are_committed, records_are_paired
from services.kernel.record.envelope import partition_of


@dataclass(frozen=True)
class Violation:
    invariant: str
    where: str
    what: str


def check(evidence: Evidence) -> list[Violation]:
    """Everything that does not hold; empty when all does."""
    events = evidence.events
    found = [
        *_one_answer(evidence.acknowledged),
        *_acknowledged_is_logged(events, evidence.acknowledged),
        *_one_effect(events),
        *_versions(events),
        *_one_writer(events),
        *_nothing_aborted(events, evidence.seen),
        *_transactions_are_whole(events),
    ]
    found += [Violation("I5", where, what) for where, what in causes_are_committed(events, evidence.sent)]
    found += [Violation("I6", where, what) for where, what in records_are_paired(events, evidence.sent)]
    found += [Violation("I7", where, what) for where, what in stock_adds_up(events)]
    found += [Violation("I8", where, what) for where, what in money_is_conserved(events)]
    found += [Violation("I9", where, what) for where, what in conversations_end(events, evidence.at_rest)]
    return found


def _acknowledged_is_logged(events: list[Recorded], told: list[Acknowledged]) -> Iterator[Violation]:
    by_cause: dict[str, list[Recorded]] = defaultdict(list)
    for recorded in events:
        by_cause[recorded.metadata.causation_id].append(recorded)
    for answer in told:
        logged = by_cause[answer.command_id]
        ids = tuple(recorded.metadata.id for recorded in logged)
        if answer.kind != "accepted" and logged:
            yield Violation("I2", answer.command_id, f"{answer.kind} ({answer.code}), yet it left {ids}")
        if answer.kind == "accepted" and set(answer.event_ids) - set(ids):
            yield Violation("I1", answer.command_id, f"acknowledged events {answer.event_ids}, logged {ids}")
        if answer.event_ids and logged and logged[-1].metadata.version != answer.version:
            yield Violation("I1", answer.command_id, f"told version {answer.version}, logged another")


def _one_answer(told: list[Acknowledged]) -> Iterator[Violation]:
    first: dict[str, Acknowledged] = {}
    for answer in told:
        if first.setdefault(answer.command_id, answer) != answer:
            yield Violation("I2", answer.command_id, f"told {first[answer.command_id]}, then {answer}")


def _one_effect(events: list[Recorded]) -> Iterator[Violation]:
    transactions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for recorded in events:
        at = (recorded.key, recorded.metadata.causation_id)
        transactions[at].add(recorded.metadata.transaction.partition("/")[0])
    for (key, cause), found in transactions.items():
        if len(found) > 1:
            yield Violation("I2", key, f"command {cause} had an effect in {len(found)} transactions")


def _versions(events: list[Recorded]) -> Iterator[Violation]:
    last: dict[tuple[str, str], int] = defaultdict(int)
    ids: set[str] = set()
    for recorded in events:
        stream, version = (recorded.topic, recorded.key), recorded.metadata.version
        at = f"{recorded.topic}/{recorded.partition}/{recorded.offset}"
        if version != last[stream] + 1:
            yield Violation("I3", recorded.key, f"version {version} follows {last[stream]} at {at}")
        if recorded.verdict == "suspect":
            yield Violation("I3", recorded.key, f"version {version} at {at} is not its owner's: decide")
        if recorded.event is None:
            yield Violation("I3", recorded.key, f"version {version} at {at} cannot be decoded")
        last[stream] = max(version, last[stream])
        if recorded.metadata.id in ids:
            yield Violation("I3", recorded.key, f"event id {recorded.metadata.id} stands twice")
        ids.add(recorded.metadata.id)


def _one_writer(events: list[Recorded]) -> Iterator[Violation]:
    epochs: dict[tuple[str, int], int] = {}
    for recorded in events:
        if partition_of(recorded.key, recorded.partitions) != recorded.partition:
            yield Violation("I10", recorded.key, f"stands in foreign partition {recorded.partition}")
        place, epoch = (recorded.topic, recorded.partition), recorded.metadata.epoch
        if epoch < epochs.get(place, epoch):
            yield Violation("I10", recorded.key, f"epoch {epoch} after {epochs[place]}")
        epochs[place] = epoch


def _nothing_aborted(events: list[Recorded], seen: Iterable[str]) -> Iterator[Violation]:
    committed = {recorded.metadata.id for recorded in events}
    for event_id in seen:
        if event_id not in committed:
            yield Violation("I5", event_id, "a reader took an event that is not committed")


def _transactions_are_whole(events: list[Recorded]) -> Iterator[Violation]:
    members: dict[tuple[str, int], list[int]] = defaultdict(list)
    for recorded in events:
        parts = recorded.metadata.transaction.split("/")
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            yield Violation("I6", recorded.key, f"event {recorded.metadata.id} names no transaction")
            continue
        members[parts[0], int(parts[2])].append(int(parts[1]))
    for (name, size), indexes in members.items():
        if sorted(indexes) != list(range(size)):
            yield Violation("I6", name, f"{size} events were written, {sorted(indexes)} are there")
