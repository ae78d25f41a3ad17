"""A log of several epochs from before openings: they are recorded once, and it reads as it was written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contracts.kernel.records import SiteRole
from infra.lab.checker.evidence import read_evidence
from infra.log.control import write_role
from infra.log.event_log import foreign_records, journal_at
from infra.log.topics import create_topics, ensure_site
from services.kernel.log.rule import Journal
from tests.contract.log_rule_cases import OTHER, TOPIC, event, opening
from tests.foreign_records import write_log
from tests.stack import own_broker

FORGED = 2**31 - 1


@pytest.fixture
def old_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a site in epoch 3 that was promoted twice; `FORGED` is a forger's, and 3 is opened by a record."""
    with own_broker(tmp_path_factory.mktemp("old")) as bootstrap:
        create_topics(bootstrap)
        write_log(
            bootstrap, [event(1), event(2, epoch=2), event(2, epoch=FORGED), opening(3), event(3, epoch=3)]
        )
        yield bootstrap


def test_an_active_site_records_the_epochs_of_its_log_once(old_log: str) -> None:
    write_role(old_log, SiteRole("away", "active", 3))
    ensure_site(old_log, "away")
    recorded = Journal(epochs={TOPIC: frozenset({2}), "order.events": frozenset()})
    assert journal_at(old_log) == recorded
    read = [(record.metadata.version, record.metadata.epoch) for record in read_evidence(old_log)]
    assert read == [(1, 1), (2, 2), (3, 3)]
    assert [record.reason for record in foreign_records(old_log)] == ["epoch_not_open"]
    # a record of an epoch that nobody opened stays foreign, whenever the site starts again
    write_log(old_log, [event(1, OTHER, epoch=2)])
    ensure_site(old_log, "away")
    assert journal_at(old_log) == recorded


def test_a_site_in_its_first_epoch_has_none_to_record(old_log: str) -> None:
    ensure_site(old_log)
    assert journal_at(old_log).epochs == {TOPIC: frozenset(), "order.events": frozenset()}
    write_role(old_log, SiteRole("home", "active", 3))
    ensure_site(old_log)
    assert journal_at(old_log).epochs[TOPIC] == frozenset(), "what came in between opened no epoch"


def test_a_passive_site_writes_nothing(old_log: str) -> None:
    write_role(old_log, SiteRole("away", "passive", 3))
    ensure_site(old_log, "away")
    assert journal_at(old_log) == Journal()
