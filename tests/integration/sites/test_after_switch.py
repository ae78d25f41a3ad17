"""Real mirrors in both directions: after a switch that lost nothing the report says so, after another it lists."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from contracts.kernel.records import SwitchKind
from infra.base.waiting import wait_until
from infra.dr.losses import Report, report_losses
from infra.dr.mirror import MirrorMeter, last_data, reset_internal, seed
from infra.log.event_log import read_log
from infra.log.topics import catalogue, mirrored_topics
from infra.stack.embedded.child import Child
from infra.stack.embedded.kafka import prepare_mirror
from infra.stack.mirror_settings import MirrorPlace, mirror_transactional_id
from services.kernel.log.rule import Event
from services.kernel.log.transactions import Transactions
from tests.contract.log_rule_cases import TOPIC, event, opening
from tests.foreign_records import write_log
from tests.integration.sites import shop
from tests.integration.sites.test_old_log import abort, refusal, write_answers
from tests.ports import free_ports
from tests.stack import site_broker

pytestmark = pytest.mark.long

SECONDS = 270.0  # a mirror beside other tests has taken more than two minutes for its first record
Ends = dict[shop.Place, int]


@contextmanager
def mirror(folder: Path, source: tuple[str, str], target: tuple[str, str]) -> Iterator[None]:
    """Runs within the block; at its end it is killed and fenced. Sites are name and address."""
    port = free_ports(1)[0]
    flow = MirrorPlace(folder, port, source[0], target[0], source[1], target[1], mirrored_topics())
    child = Child(prepare_mirror(flow), folder / "mirror.log")
    try:
        yield
    finally:
        child.kill()
        Transactions(target[1], [mirror_transactional_id(source[0])], 10_000).fence()


def await_copied(source: tuple[str, str], target: tuple[str, str]) -> None:
    with MirrorMeter(source[1], target[1], source[0]) as meter:
        meter.wait(0, SECONDS)


def ends_at(bootstrap: str) -> Ends:
    """As a switch records them."""
    ends = last_data(bootstrap, mirrored_topics())
    topics = [topic for topic in catalogue().values() if topic.mirrored]
    every = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    return {partition: ends.get(partition, -1) for partition in every}


def report(old: tuple[str, str], new: tuple[str, str], kind: SwitchKind, epoch: int, ends: Ends) -> Report:
    return report_losses(old[1], new[1], shop.switch(old[0], new[0], kind, epoch, ends))


@contextmanager
def writing(bootstrap: str, first: int) -> Iterator[None]:
    """Somebody writes events of epoch 2 within the block, so that the mirror copies while the report is made."""
    over = threading.Event()

    def write() -> None:
        for version in count(first):
            write_log(bootstrap, [event(version, epoch=2)])
            if over.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


@pytest.mark.timeout(400)
def test_a_switch_that_lost_nothing_and_one_that_did(tmp_path: Path) -> None:
    with site_broker(tmp_path / "home") as first, site_broker(tmp_path / "away") as second:
        home, away = ("home", first), ("away", second)
        write_log(first, [event(version) for version in range(1, 301)])
        write_answers(first, [refusal(number, 1) for number in range(5)])
        abort(first, [event(301)])
        with mirror(tmp_path / "there", home, away):
            await_copied(home, away)
        ends = ends_at(second)
        write_log(second, [opening(2)])
        with writing(second, 301):
            reset_internal(first, "away")
            seed(first, "away", {partition: end for partition, end in ends.items() if end >= 0})
            with mirror(tmp_path / "back", away, home):
                wait_until(lambda: last_of(first) > 310, "the new site's events come back", SECONDS)
                write_answers(second, [refusal(number, 2) for number in range(5)])
                during = report(home, away, "planned", 2, ends)
                await_copied(away, home)
        assert (during.verdict, during.losses) == ("none, proven up to the recorded ends", ())
        assert (during.torn_transactions, during.conversations, during.parted) == ((), (), ())
        assert report(home, away, "planned", 2, ends).verdict == during.verdict

        # the mirror is gone: what is written now is lost, also in a partition that was never mirrored
        back = ends_at(first)
        lost = ["lost-1", "lost-2"]
        abort(second, [event(1_000_001, epoch=2)])
        write_log(
            second, [event(1_000_000 + number, epoch=2, event_id=name) for number, name in enumerate(lost)]
        )
        write_answers(second, [refusal(9, 2)], "order.answers")
        write_log(first, [opening(3)])
        taken = report(away, home, "unplanned", 3, back)
        assert taken.verdict == "listed" and not taken.searched
        names = {loss.command_id: [record.event_id for record in loss.events] for loss in taken.losses}
        tail = [name for events in names.values() for name in events]
        assert tail[-2:] == lost and names["c-2-9"] == []
        assert sorted(tail) == sorted(unmirrored_ids(second, first))


def last_of(bootstrap: str) -> int:
    return last_data(bootstrap, [TOPIC])[TOPIC, 0]


def unmirrored_ids(old: str, new: str) -> set[str]:
    """The events of one log that the other lacks, by reading both whole."""

    def ids(bootstrap: str) -> set[str]:
        log = read_log(bootstrap, TOPIC, {0: 0})
        return {kind.metadata.id for _, kind in log if isinstance(kind, Event)}

    return ids(old) - ids(new)
