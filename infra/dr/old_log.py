"""Reading the log of a site that is down: its broker alone is started from its folder, and stopped again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from contracts.topics import INPUTS, TOPICS
from infra.base.waiting import wait_until
from infra.dr.plan import heard
from infra.dr.steps import NotDone, Show
from infra.log.topics import SERVICES, mirrored_topics
from infra.stack.platform import platform_of
from infra.stack.site import Site
from services.kernel.log.control import read_control, transactional_ids
from services.kernel.log.reader import high_watermarks, partitions_by_topic, partitions_of
from services.kernel.log.transactions import OwnershipLost, Transactions

TIMEOUT_MS = 10_000
YOUNG_SECONDS = 60.0


@contextmanager
def readable(site: Site, show: Show) -> Iterator[str]:
    """The address at which the site's log can be read meanwhile; its role stays as it is. Raises NotDone."""
    if heard(site.link) is not None:
        yield site.link
        return
    platform = platform_of(site.settings)
    if platform.up(site):
        raise NotDone(
            f"{site.name} runs and cannot be reached: mend the way (`./daybook sites heal`) or stop it "
            f"(`./daybook --site {site.name} down`)"
        )
    if not platform.has_log(site):
        raise NotDone(f"{site.name} has no log: the disk of its broker is gone")
    show(f"starting the broker of {site.name} alone")
    with platform.broker_alone(site) as bootstrap:
        _settle_patiently(bootstrap)
        yield bootstrap


def _settle_patiently(bootstrap: str) -> None:
    """A young broker names itself leader of a partition before it is; all of it may be repeated."""
    wait_until(
        lambda: _settle(bootstrap),
        "the old log is settled",
        YOUNG_SECONDS,
        enough=lambda _: True,
        later=(KafkaException, OwnershipLost),
    )


def _settle(bootstrap: str) -> None:
    """End what the crash left undecided: it was acknowledged to nobody, and it holds up every reader."""
    for topic in mirrored_topics():
        high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))
    control = read_control(bootstrap)
    for service in SERVICES:
        own = TOPICS[service]
        topics = [own.events, own.answers, own.outcomes, *sorted(INPUTS)]
        there = partitions_by_topic(bootstrap)  # a site that was lost before its upgrade has no inbox
        places = [(topic, number) for topic in topics for number in there.get(topic, ())]
        for slot in range(control.layout(service).slots):
            transactions = Transactions(bootstrap, transactional_ids(service, slot), TIMEOUT_MS)
            transactions.fence()
            transactions.settle(places, [], None)
