"""The small demo; a load during which every process is killed once; the same load again; the audits."""

import os
import signal
from datetime import date
from pathlib import Path

import pytest

from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Evidence, read_evidence, read_seen, read_sent
from infra.lab.checker.invariants import check
from infra.lab.demo import census
from infra.lab.load.shop import Shop as Reader
from infra.lab.load.shop import api_urls
from infra.lab.source_check.checks import check as check_marts
from infra.stack.shop import NAMES
from infra.stack.site import Site
from tests.e2e.shop import SECONDS, Shop

TWO_DAYS = ("load", "--from", "2010-12-21", "--to", "2010-12-22")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def eventually_ready(shop: Shop, name: str, restarts: int) -> None:
    wait_until(lambda: shop.member(name).restarts > restarts and shop.ready(name), f"{name} is back", SECONDS)


def test_the_demo_in_small(shop: Shop) -> None:
    output = shop.run("demo", "--small", "--no-spark")
    assert "417 commands, 417 with the same response as before" in output
    assert "nothing has changed" in output
    assert "1 rejected" in output


def test_each_process_has_only_its_own_secrets(shop: Shop) -> None:
    home = shop.settings.home
    files = [home / "hash-key", *(home / "postgres").glob("*password")]
    secrets = {file.name: file.read_text() for file in files}
    assert len(secrets) == 7
    seen = {
        name: {
            secret
            for secret, value in secrets.items()
            if value in Path(f"/proc/{shop.member(name).pid}/environ").read_text(errors="replace")
        }
        for name in NAMES
    }
    assert {name: names for name, names in seen.items() if names} == {
        "order-api": {"hash-key"},
        "inventory-api": {"hash-key"},
        "projection": {"projection-password"},
        "query-api": {"query-password"},
    }


def test_every_process_is_killed_once_and_nothing_is_lost_or_doubled(shop: Shop) -> None:
    load = shop.start(*TWO_DAYS, "--rate", "15", "--concurrency", "16")
    killed_during_load = 0
    for name in NAMES:
        before = shop.member(name)
        assert before.pid is not None
        killed_during_load += load.poll() is None
        os.kill(before.pid, signal.SIGKILL)
        eventually_ready(shop, name, before.restarts)
    output, _ = load.communicate(timeout=SECONDS)
    assert load.returncode == 0, output
    assert killed_during_load >= len(NAMES) - 2, "the load was over too early to prove anything"

    with Reader(api_urls(shop.settings)) as reader:
        nothing_changes(shop, reader)


def nothing_changes(shop: Shop, reader: Reader) -> None:
    """The log is valid, and the same load again does not change it."""
    reader.await_rest(SECONDS)
    events, seen = read_evidence(shop.settings.kafka), read_seen(Site(shop.settings).database_url)
    sent = read_sent(shop.settings.kafka)
    of_orders = sum(event.topic == "order.events" for event in events)
    assert sent and len(seen) >= of_orders, "the read models hold every event of an order"
    assert check(Evidence(events, seen=seen, sent=sent, at_rest=True)) == []
    assert {event.metadata.auth.type for event in events} <= {"user", "system", "unauthenticated"}

    before_repeat = census(reader)
    assert "refused: none" in shop.run(*TWO_DAYS)
    reader.await_rest(SECONDS)
    assert census(reader) == before_repeat


def test_log_read_models_spark_and_the_data_agree(shop: Shop) -> None:
    output = shop.run("audit", "--expectation", str(shop.settings.home / "expectation.jsonl"))
    assert "Identical" in output


@pytest.mark.full
def test_the_marts_agree_with_the_retail_file(shop: Shop) -> None:
    """Compares every mart. Other code computes the figures of the file."""
    shop.run("analytics", "run")
    days = ("--from", "2010-12-19", "--to", "2010-12-22")
    shop.run("analytics", "check-source", *days)
    comparisons = list(check_marts(shop.settings.home / "marts", date(2010, 12, 19), date(2010, 12, 22)))
    assert {
        comparison.figure: comparison.differing for comparison in comparisons if comparison.differing
    } == {}
    assert all(comparison.keys for comparison in comparisons if "cancelled" not in comparison.figure), (
        "nothing was compared"
    )
