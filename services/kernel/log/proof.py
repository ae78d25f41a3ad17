"""Whether a process may act for its site while another site exists that may replace it (ADR 24).

A process that did not run for a while, or whose broker did not, may wake at a site that was replaced meanwhile. It acts
again only after a comparison with the other site that began after that gap.
"""

import threading
import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaException
from prometheus_client import Gauge

from services.kernel.log import clients
from services.kernel.log.control import CONTROL, Control, ControlSource
from services.kernel.log.reader import NotKnown

GAP_SECONDS = 2.0
CONTACT_EVERY_SECONDS, CONTACT_SECONDS = 0.25, 1.0
COMPARE_EVERY_SECONDS, COMPARE_SECONDS = 0.1, 2.0
RENEWALS = 4  # attempts to renew a lease before it ends

log = structlog.get_logger()


def boot_seconds() -> float:
    """A clock that also counts while the process, or the machine, does not run. In seconds, from any beginning."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def claimed_epoch(control: Control) -> int:
    """The epoch of a site, or the one that its unfinished promotion announces: its write block precedes its role."""
    return max(control.role.epoch, control.block.epoch if control.block is not None else 0)


class SiteProof:
    """What a process knows about its site. Without I/O; every time is of one clock of this process, in seconds.

    One thread calls `contact`, one `compared`, any thread `why_not`: each writes last what the others read first.
    """

    def __init__(self, lease_seconds: int = 0) -> None:
        """`lease_seconds`: how long a comparison counts; 0: until the next gap."""
        self._lease = lease_seconds
        self._contact_at = self._compared_at = float("-inf")
        self._gap_until = float("inf")  # a process that starts did not run before
        self._their_epoch = 0

    def contact(self, began: float, ended: float) -> None:
        """The own broker responded at `ended` to a request of `began`.

        So both ran at some moment between these. The longest time that they may not have run is from the beginning of
        the contact before to the end of this one.
        """
        if ended - self._contact_at > GAP_SECONDS:
            self._gap_until = ended
        self._contact_at = began

    def compared(self, began: float, theirs: Control) -> None:
        """The other site's records were read; the first request for them was sent at `began`."""
        self._their_epoch = claimed_epoch(theirs)
        if theirs.lease_seconds == self._lease:
            self._compared_at = began

    def why_not(self, own: Control, now: float) -> str:
        """Why the process must not act for its site now; empty where it may. `own`: the site's records, as far as this
        process has read them."""
        # In this order: what a writer writes last is read first.
        contact_at, compared_at = self._contact_at, self._compared_at
        if self._their_epoch > own.role.epoch:
            return f"the other site is in epoch {self._their_epoch}, this one in {own.role.epoch}"
        if own.alone:
            return ""
        if now - contact_at > GAP_SECONDS:
            return f"this process or its broker did not run for more than {GAP_SECONDS:g} s"
        if compared_at < self._gap_until:
            return "it may have been replaced: not compared with the other site since, or their leases differ"
        if self._lease and now > compared_at + self._lease:
            return "its lease has ended: it cannot compare itself with the other site, or their leases differ"
        return ""

    def due(self, own: Control, now: float) -> bool:
        """Whether a comparison is needed now: to prove the site, or to renew its lease."""
        renew_at = self._compared_at + self._lease / RENEWALS if self._lease else float("inf")
        return bool(self.why_not(own, now)) or (now > renew_at and not own.alone)


class SiteProver:
    """Keeps the proof of this process up to date, in two threads for the life of the process, which has one prover.

    `control` returns the site's records. Contacts cost four small requests a second; the other site is read only when
    the proof needs it.
    """

    def __init__(
        self, bootstrap: str, peer_bootstrap: str, control: Callable[[], Control], lease_seconds: int
    ) -> None:
        self._control, self._source = control, ControlSource(peer_bootstrap)
        self._admin = clients.admin(bootstrap)
        self._proof = SiteProof(lease_seconds)
        # A process of a single site does not have this metric.
        proven = Gauge("daybook_site_proven", "1 where the process may act for its site")
        proven.set_function(lambda: float(not self.why_not()))
        for work in (self._contact, self._compare):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def why_not(self) -> str:
        """See `SiteProof`."""
        return self._proof.why_not(self._control(), boot_seconds())

    def _contact(self) -> None:
        while True:
            began = boot_seconds()
            try:
                self._admin.list_topics(CONTROL, CONTACT_SECONDS)
                self._proof.contact(began, boot_seconds())
            except KafkaException:
                pass  # a gap, if it lasts
            time.sleep(CONTACT_EVERY_SECONDS)

    def _compare(self) -> None:
        reason = ""
        while True:
            if self._proof.due(self._control(), boot_seconds()):
                self._read_peer()
            if (now := self.why_not()) != reason:
                log.warning("site_unproven", reason=now) if now else log.info("site_proven")
                reason = now
            time.sleep(COMPARE_EVERY_SECONDS)

    def _read_peer(self) -> None:
        """With a new client after each success: between two comparisons the other site may be rebuilt."""
        began = boot_seconds()
        try:
            self._proof.compared(began, self._source.read(COMPARE_SECONDS))
            self._source.close()
        except (NotKnown, KafkaException):
            pass  # it remains unproven, which is logged once
