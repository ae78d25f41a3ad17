"""Between the broker and the services: topics, the site's first records, and the proof of its role."""

import os
from collections.abc import Callable

from confluent_kafka import KafkaException

from infra.base.errors import NotReady
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.log.asking import Address
from infra.log.topic_safety import Unsafe, make_safe
from infra.log.topics import create_topics, ensure_site
from infra.stack.site import peer
from infra.stack.start import prove_role

TOPICS_SECONDS = 30.0
PAUSE_SECONDS = 0.1
# `daybook up --active` sets it: the other site is not asked.
TOLD_ACTIVE = "DAYBOOK_TOLD_ACTIVE"


def open_site(settings: StackSettings, journal: StackJournal, stopping: Callable[[], bool]) -> None:
    """Before any service asks: what the catalogue names, who this site is, and whether it may be active.

    Returns early when `stopping`. Raises NotReady.
    """
    _create_topics(settings, journal, stopping)
    other = peer(settings)
    if other is None or stopping():
        return
    own = Address(settings.site, settings.kafka)
    told = os.environ.get(TOLD_ACTIVE) == "1"
    try:
        standing = prove_role(own, Address(other.name, other.link), told=told, stopping=stopping)
    except (KafkaException, TimeoutError) as reason:
        raise NotReady(f"the site's role is not known: {reason}") from reason
    journal.record("site", "role", standing)


def _create_topics(settings: StackSettings, journal: StackJournal, stopping: Callable[[], bool]) -> None:
    def created() -> bool:
        if stopping():
            return True
        created = create_topics(settings.kafka)
        for line in make_safe(settings.kafka):
            journal.record("broker", "topics", f"{line}: set right")
        ensure_site(settings.kafka, settings.site)
        journal.record("broker", "topics", f"{len(created)} created")
        return True

    try:
        # A young broker names itself leader of a partition before it is; both steps may be repeated.
        wait_until(
            created,
            "topics are created",
            TOPICS_SECONDS,
            later=(KafkaException, TimeoutError),
            every=PAUSE_SECONDS,
            error=NotReady,
        )
    except Unsafe as reason:
        raise NotReady(f"what is acknowledged could be lost: {reason}") from reason
