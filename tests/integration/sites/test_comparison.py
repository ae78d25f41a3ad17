"""Two logs are the same where their events and openings are; foreign records are skipped."""

from __future__ import annotations

from pathlib import Path

from infra.dr.comparison import compare
from infra.log.topics import create_topics
from tests.contract.log_rule_cases import TOPIC, event, opening
from tests.foreign_records import planted, write_log
from tests.stack import own_broker


def test_foreign_records_make_no_difference_and_doubled_events_do(tmp_path: Path) -> None:
    with own_broker(tmp_path / "active") as active, own_broker(tmp_path / "passive") as passive:
        for site in (active, passive):
            create_topics(site)
        foreign = [item.record for item in planted() if not item.stops]
        good = [event(1), event(2), opening(2), event(3, epoch=2)]
        write_log(active, [foreign[0], *good, event(4, epoch=2)])
        write_log(passive, [*good[:2], *foreign, *good[2:]])
        comparison = compare(active, passive)
        assert (comparison.records, comparison.different, comparison.missing) == (len(good), (), 1)
        write_log(passive, [event(3, epoch=2)])
        assert compare(active, passive).different == (f"{TOPIC}/0 at record {len(good)}",)
