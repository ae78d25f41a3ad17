"""Clients at work on a shop, whose log and read models are checked when they have finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from infra.base.settings import StackSettings
from infra.lab.checker.evidence import Evidence, read_evidence, read_seen, read_sent
from infra.lab.checker.invariants import check
from infra.lab.drills.judgement import for_checker
from infra.lab.load.clients import Api, CommandResponse
from infra.lab.load.load import Load
from infra.lab.load.orders import Shopping
from infra.lab.load.shop import api_urls, await_rest
from infra.log.event_log import foreign_records
from infra.stack.site import Site
from tests.e2e.shop import SECONDS

FIRST, SECOND = "first", "second"


@contextmanager
def load(settings: StackSettings, folder: Path, name: str) -> Iterator[Load]:
    """Clients at work; at the end every command has an outcome, and log and read models are sound."""
    urls = api_urls(settings)
    second = replace(urls, addresses={**urls.addresses, Api.ORDER: settings.url("order-api-1")})
    with Load({FIRST: urls, SECOND: second}, FIRST, Shopping(1, name), folder / name, 40) as clients:
        yield clients
        assert clients.finish() == []
    await_rest("the shop", urls, SECONDS)
    check_sound(settings.kafka, Site(settings).database_url, clients.responses)


def check_sound(kafka: str, database_url: str, responses: Iterable[CommandResponse]) -> None:
    """The log at rest keeps every invariant, beside what clients received and what the read models contain."""
    kept = [for_checker(response) for response in responses]
    events, sent = read_evidence(kafka), read_sent(kafka)
    seen = read_seen(database_url)
    assert {event.metadata.id for event in events if event.topic == "order.events"} <= seen
    assert check(Evidence(events, kept, seen, sent, at_rest=True)) == []
    assert foreign_records(kafka) == []
