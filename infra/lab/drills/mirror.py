"""The mirror under load: killed again and again beside aborted transactions, cut off, slowed down."""

import time

from confluent_kafka import KafkaException

from infra.base.background import Background
from infra.base.waiting import wait_until
from infra.dr.mirror import MirrorLag, MirrorMeter
from infra.dr.overview import canary_delay, overview
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, all_have_outcomes
from infra.lab.drills.judgement import check_equal, check_nothing_lost, judge, not_logged
from infra.lab.drills.pair import Pair, Sides, both_sites
from infra.stack.link import LinkState, set_links
from infra.stack.platform import SiteProcess
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.log import clients

KILLS = 2
BACK_SECONDS = 120.0  # its JVM starts beside clients that fill the cores
BETWEEN = (2.0, 6.0)
APART = (8.0, 16.0)
LATE_MS, LATE_SECONDS = 100, 6.0
CATCH_UP_SECONDS = 60.0
ABORTED_TOPICS = ("order.events", "inventory.events", "order.answers")
ABORTED_RECORDS, ABORT_EVERY_SECONDS, ABORT_TIMEOUT = 20, 0.5, 20.0


class Aborts(Background):
    """Writes transactions and aborts them, between `with` and its end: no reader of committed data may see a record.

    `records` counts what was written.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__("aborts")
        self._producer = clients.writer(
            bootstrap, {"transactional.id": "drill-aborts", "transaction.timeout.ms": 10_000}
        )
        self._failure: KafkaException | None = None
        self.records = 0

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._failure:
            raise self._failure

    def _work(self) -> None:
        try:
            self._producer.init_transactions(ABORT_TIMEOUT)
            while not self._stopping.wait(ABORT_EVERY_SECONDS):
                self._producer.begin_transaction()
                for number in range(ABORTED_RECORDS):
                    topic = ABORTED_TOPICS[number % len(ABORTED_TOPICS)]
                    self._producer.produce(topic, b"never", f"never-{number}")
                self._producer.flush(ABORT_TIMEOUT)
                self._producer.abort_transaction(ABORT_TIMEOUT)
                self.records += ABORTED_RECORDS
        except KafkaException as error:
            self._failure = error


def _kill(course: Course[Sides], kills: int) -> Aborts:
    active, passive = course.rig.active, course.rig.other
    aborts = course.running.enter_context(Aborts(active.bootstrap))
    for number in range(1, kills + 1):
        course.show(f"kill {number} of {kills}")
        course.sleep(BETWEEN)
        back = _killed(course.rig.pair, passive)
        course.report.at_most(f"kill {number}: from the kill to a mirror that copies", back, BACK_SECONDS)
    return aborts


def _killed(pair: Pair, passive: Site) -> float:
    """Kill the mirror. Returns the seconds until its successor has let a canary through."""

    def mirror() -> SiteProcess:
        process = pair.platform.processes(passive).get(MIRROR)
        if process is None:
            raise DrillFailed(f"{passive.name} has no mirror")
        return process

    before = mirror()
    if not before.running:
        raise DrillFailed(f"no mirror runs at {passive.name}")
    began = time.monotonic()
    pair.platform.kill(passive, MIRROR)
    wait_until(
        mirror,
        f"the mirror at {passive.name} comes back",
        2 * BACK_SECONDS,
        enough=lambda now: now.ready and now.life != before.life,
        error=DrillFailed,
    )
    return time.monotonic() - began


def _aborts_are_counted(course: Course[Sides], aborts: Aborts) -> None:
    course.report.figures["records in aborted transactions"] = aborts.records


def _cut_and_delay(course: Course[Sides]) -> None:
    pair, report, active, passive = course.rig.pair, course.report, course.rig.active, course.rig.other
    apart = course.random.uniform(*APART)
    course.show(f"cut off for {apart:.0f} s")
    course.running.callback(pair.reconnect)
    pair.cut()
    time.sleep(apart)
    mirror = overview(pair.sites).mirror
    unknown = mirror is not None and mirror.events is None
    report.promise("the lag while they are cut off", "said to be unknown", str(mirror), unknown)
    pair.reconnect()
    course.show("catching up")
    began = time.monotonic()
    behind = _await_caught_up(active, passive)
    took = time.monotonic() - began
    report.at_most("from contact to a mirror that is close again", took, CATCH_UP_SECONDS)
    report.figures["events behind at contact"] = behind
    course.show(f"{LATE_MS} ms late")
    set_links(pair.sites.values(), LinkState(delay_ms=LATE_MS))
    time.sleep(LATE_SECONDS)
    canary = canary_delay(passive)
    pair.reconnect()
    reported = canary is not None and LATE_MS / 1000 <= canary < 5
    report.promise(f"the canary's delay, {LATE_MS} ms away", "reported", f"{canary} s", reported)


def _await_caught_up(active: Site, passive: Site) -> int:
    """Wait until the mirror is less than a second behind. Returns the events that it was behind at first."""
    lags: list[MirrorLag] = []

    def lag() -> MirrorLag:
        lags.append(meter.read(5))
        return lags[-1]

    with MirrorMeter(active.link, passive.bootstrap, active.name) as meter:
        wait_until(
            lag,
            f"the mirror into {passive.name} catches up",
            2 * CATCH_UP_SECONDS,
            enough=lambda newest: newest.oldest_seconds <= 1,
            later=(TimeoutError,),  # contact takes a moment
            error=DrillFailed,
        )
    return lags[0].total


def passive_is_sound(course: Course[Sides], _: object) -> None:
    """The mirrored log is judged as the active one would be, and both must be equal."""
    report, pair, active, passive = course.report, course.rig.pair, course.rig.active, course.rig.other
    course.show("coming to rest")
    pair.await_rest(active)
    pair.await_mirrored(active, passive)
    lost = not_logged(passive.bootstrap, course.load.responses)
    report.none("acknowledged writes that the passive site misses", lost)
    judge(report, passive.bootstrap, course.load.responses, database_url=passive.database_url)
    check_equal(report, active, passive)
    check_nothing_lost(report, pair, course.run.folder)


def mirror_crash(kills: int = KILLS) -> Drill[Sides, Aborts]:
    """The drill with so many kills; roles stay."""
    return Drill(
        "mirror-crash",
        "Kill the mirror twice under load, with aborted transactions: nothing is doubled or missing.",
        rig=both_sites,
        clients=Clients("m"),
        faults=lambda course: _kill(course, kills),
        promises=(_aborts_are_counted, all_have_outcomes, passive_is_sound),
    )


MIRROR_LAG = Drill(
    "mirror-lag",
    "Cut the link between the sites under load, then delay it: the lag must be reported and caught up.",
    rig=both_sites,
    clients=Clients("l"),
    faults=_cut_and_delay,
    promises=(all_have_outcomes, passive_is_sound),
)
