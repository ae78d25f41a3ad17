"""The end of an old log is read from the mirror's position; what cannot be proven is said, and never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Message, Producer

from contracts.kernel.records import Answer, Outcome, SwitchKind
from infra.dr.losses import Report, report_losses
from infra.dr.mirror import reset_internal, seed
from infra.dr.old_log import UnprovenPart
from services.kernel.log import reader
from services.kernel.record.codec import encode, what_is_there
from tests.contract.log_rule_cases import ELSEWHERE, NOW, OTHER, TOPIC, LogRecord, event, opening
from tests.foreign_records import write_log
from tests.integration.sites import shop

pytestmark = pytest.mark.long

MIRRORED = 20_000
LOST = ["lost-1", "lost-2", "lost-3"]
NEVER_MIRRORED = "lost-4"
ANSWERS = "inventory.answers"


def refusal(number: int, epoch: int) -> LogRecord:
    """A refusal that was recorded in an epoch."""
    outcome = Outcome(
        f"c-{epoch}-{number}", "", OTHER, "", "refused", 0, (), "", "no", "", "hash", replayed=False
    )
    return LogRecord(OTHER.encode(), encode(ANSWERS, Answer(outcome, NOW + epoch * 1000 + number)), ())


def write_answers(bootstrap: str, records: Sequence[LogRecord], topic: str = ANSWERS) -> None:
    """With the time of now: retention removes older ones."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        producer.produce(topic, record.value, record.key, partition=0)
    assert producer.flush(30) == 0


def abort(bootstrap: str, records: Sequence[LogRecord]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "aborted"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for record in records:
        producer.produce(TOPIC, record.value, record.key, partition=0, headers=list(record.headers))
    producer.flush(30)
    producer.abort_transaction(30)


@dataclass(frozen=True)
class Logs:
    """Two logs and what the switch between them recorded."""

    old: str
    new: str
    positions: dict[tuple[str, int], int]
    ends: dict[shop.Place, int]

    def report(
        self, kind: SwitchKind = "unplanned", old: str | None = "", ends: dict[shop.Place, int] | None = None
    ) -> Report:
        switch = shop.switch("home", "away", kind, 2, self.ends if ends is None else ends)
        return report_losses(self.old if old == "" else old, self.new, switch)

    def seeded(self, positions: dict[tuple[str, int], int] | None = None) -> None:
        """The mirror at the new site has these positions, by default the true ones; None of them: no topic."""
        reset_internal(self.new, "home")
        positions = self.positions if positions is None else positions
        if positions:
            seed(self.new, "home", positions)


@pytest.fixture(scope="module")
def logs(two_brokers: tuple[str, str]) -> Logs:
    """A long log, mirrored except for its end, and what the new site wrote since. One partition of it was never
    mirrored, and aborted records are between what is lost."""
    old, new = two_brokers
    write_log(old, [event(version) for version in range(1, MIRRORED + 1)])
    write_answers(old, [refusal(number, 1) for number in range(5)])
    cuts = shop.ends(old)
    shop.mirror(old, new, cuts)
    ends = {partition: end - 1 for partition, end in shop.ends(new).items()}
    lost = [event(MIRRORED + version, event_id=name) for version, name in enumerate(LOST, 1)]
    abort(old, lost)
    write_log(old, lost[:1])
    abort(old, lost)
    write_log(old, lost[1:])
    write_log(old, [event(1, ELSEWHERE, event_id=NEVER_MIRRORED)], partition=1)
    write_answers(old, [refusal(5, 1)])
    write_log(new, [opening(2), event(MIRRORED + 1, epoch=2), event(1, OTHER, epoch=2)])
    write_answers(new, [refusal(number, 2) for number in range(3)])
    positions = {partition: cut - 1 for partition, cut in cuts.items() if cut}
    return Logs(old, new, positions, ends)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Message]]:
    """Every record that is read meanwhile."""
    read: list[Message] = []

    def counting(consumer: Consumer, most: int, seconds: float) -> list[Message]:
        records = what_is_there(consumer, most, seconds)
        read.extend(record for record in records if record.error() is None)
        return records

    monkeypatch.setattr(reader, "what_is_there", counting)
    yield read


def lost_events(report: Report) -> list[str]:
    return [record.event_id for loss in report.losses for record in loss.events]


def test_only_the_end_of_a_long_log_is_read(logs: Logs, counted: list[Message]) -> None:
    logs.seeded()
    report = logs.report()
    assert report.verdict == "listed" and not report.searched and not report.unproven
    assert lost_events(report) == [*LOST, NEVER_MIRRORED]
    assert [loss.command_id for loss in report.acknowledged] == ["c-1-5"]
    assert [parted.lost_id for parted in report.parted] == [LOST[0]]
    assert 0 < len(counted) < 500


def test_without_the_mirrors_positions_the_last_mirrored_record_is_searched(logs: Logs) -> None:
    logs.seeded({})
    report = logs.report()
    assert report.verdict == "listed"
    assert lost_events(report) == [*LOST, NEVER_MIRRORED]
    assert [loss.command_id for loss in report.acknowledged] == ["c-1-5"]
    assert set(report.searched) == {f"{TOPIC}/0", f"{ANSWERS}/0"}


@pytest.mark.parametrize("shift", [-200, 2, 1_000])
def test_a_log_that_is_not_the_mirrored_one_proves_nothing(logs: Logs, shift: int) -> None:
    """A log that was rebuilt, restored or cut off has another record at the position, or none."""
    logs.seeded({**logs.positions, (TOPIC, 0): logs.positions[TOPIC, 0] + shift})
    report = logs.report()
    assert report.verdict == "unknown between these offsets"
    (part,) = report.unproven
    assert (part.topic, part.partition) == (TOPIC, 0)
    assert part.first <= part.end and part.first <= logs.positions[TOPIC, 0] + shift
    assert lost_events(report) == [NEVER_MIRRORED]
    assert not report.torn_transactions and not report.conversations


def test_a_position_before_the_last_mirrored_record_lists_nothing_that_was_mirrored(logs: Logs) -> None:
    logs.seeded({**logs.positions, (TOPIC, 0): logs.positions[TOPIC, 0] - 10})
    assert lost_events(logs.report()) == [*LOST, NEVER_MIRRORED]


def test_refusals_of_a_log_that_is_shorter_than_the_mirrors_position_are_unknown(logs: Logs) -> None:
    logs.seeded({**logs.positions, (ANSWERS, 0): 1_000})
    assert [part.topic for part in logs.report().unproven] == [ANSWERS]


def test_a_partition_without_a_recorded_end_is_unknown(logs: Logs) -> None:
    logs.seeded()
    report = logs.report(
        ends={partition: end for partition, end in logs.ends.items() if partition != (TOPIC, 0)}
    )
    assert report.verdict == "unknown between these offsets"
    assert [(part.topic, part.partition, part.first) for part in report.unproven] == [(TOPIC, 0, 0)]


def test_a_log_that_is_gone_is_unknown_behind_the_mirrors_position(logs: Logs) -> None:
    logs.seeded()
    report = logs.report(old=None)
    assert report.verdict == "unknown between these offsets" and report.losses == ()
    first = logs.positions[TOPIC, 0] + 1
    assert UnprovenPart(TOPIC, 0, first, first, "the old log is gone") in report.unproven
    assert len(report.unproven) == 8


def test_what_came_back_is_not_lost_and_a_rebuilt_log_proves_nothing(logs: Logs) -> None:
    """The last test: it appends to the old log what the new site wrote, as the reversed mirror does."""
    logs.seeded()
    own = {partition: end + 1 for partition, end in logs.ends.items()}
    shop.mirror(logs.new, logs.old, shop.ends(logs.new), own)
    assert lost_events(logs.report("planned")) == [*LOST, NEVER_MIRRORED]
    assert [loss.command_id for loss in logs.report("planned").acknowledged] == ["c-1-5"]
    rebuilt = logs.report()
    assert {part.reason for part in rebuilt.unproven} == {"the old log was rebuilt from the new one"}
