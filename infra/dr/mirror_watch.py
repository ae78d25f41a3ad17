"""Watches the mirror into this site, each second, for the read side, operators and Prometheus.

A mirror that runs may copy nothing: its only task can fail while the process lives on, as when the transaction
coordinator of a busy broker refused a commit (`InvalidTxnState`). The canary, one small record a second from the active
site, shows it: its age on arrival is the mirror's delay. What a loss of the other site would cost is counted at both
sites, whatever the mirror does.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import asyncpg
import msgspec
import structlog
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contracts.kernel.records import Canary
from infra.dr.last_lag import LastLag, stored_lag
from infra.dr.mirror import FAR_SECONDS, MirrorLag, MirrorMeter
from infra.log.control import Address
from infra.stack.mirror_settings import CANARY
from services.kernel.log import clients
from services.kernel.log.control import Control
from services.kernel.log.reader import Partition
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import now_micros
from services.projection.engine.read_model import DATABASE_ERRORS

# Then the mirror is killed, and a start may take minutes; `late` and `unknown` are said after seconds.
STOPPED_SECONDS = 60.0
EVERY_SECONDS = 1.0
LAG_SECONDS = 5.0
OUTDATED_SECONDS = LAG_SECONDS + 2 * EVERY_SECONDS
LATE_SECONDS, ALARM_SECONDS = 2.0, 5.0  # as in infra/monitoring/rules.yml

MirrorState: TypeAlias = Literal["in_time", "late", "unknown"]

_ROW = """
INSERT INTO site (site, role, epoch, mirror_events, mirror_seconds, last_lag, observed_at)
VALUES ($1, $2, $3, $4, $5, $6, now())
ON CONFLICT (site) DO UPDATE SET role = excluded.role, epoch = excluded.epoch,
    mirror_events = excluded.mirror_events, mirror_seconds = excluded.mirror_seconds,
    last_lag = coalesce(excluded.last_lag, site.last_lag), observed_at = now()"""

log = structlog.get_logger()


class MirrorPulse:
    """One canary arrives each second while an active site is reachable. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat_at = 0.0
        self._positions: Mapping[Partition, int] = {}
        self._expected_since: float | None = None

    def beat(self) -> None:
        """A canary of the other site has arrived."""
        self._beat_at = self._clock()

    def copied_to(self, positions: Mapping[Partition, int]) -> None:
        """The mirror's positions. Where they move it copies, though a canary may wait behind a long backlog."""
        if positions not in ({}, self._positions):
            self._positions = positions
            self.beat()

    def expect(self, expected: bool) -> None:
        """Whether canaries should arrive: the other site responds and writes, and this one is passive."""
        if not expected:
            self._expected_since = None
        elif self._expected_since is None:
            self._expected_since = self._clock()

    def stopped_for(self) -> float | None:
        """Seconds without an expected canary, once they are too many; otherwise None."""
        if self._expected_since is None:
            return None
        silent = self._clock() - max(self._beat_at, self._expected_since)
        return silent if silent > STOPPED_SECONDS else None


class CanarySender:
    """Sends canaries to its own site's broker. `send` never waits."""

    def __init__(self, bootstrap: str, site: str) -> None:
        self._site = site
        self._producer = clients.writer(bootstrap, {"enable.idempotence": False, "message.timeout.ms": 5000})

    def send(self, epoch: int) -> None:
        value = encode(CANARY, Canary(self._site, epoch, now_micros()))
        self._producer.produce(CANARY, value, self._site, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    @staticmethod
    def _delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            log.warning("canary_not_sent", reason=error.str())


class CanaryWatch:
    """Follows the other site's canaries in this site's log, in its own thread, which calls `arrived`."""

    def __init__(self, bootstrap: str, site: str, arrived: Callable[[], None]) -> None:
        self._site, self._on_arrival = site, arrived
        self._arrived: tuple[float, float] | None = None  # delay, and when it was sent: seconds
        end = TopicPartition(CANARY, 0, OFFSET_END)
        self._consumer = clients.follower(bootstrap, [end], {"fetch.wait.max.ms": 500})
        threading.Thread(target=self._follow, name="canary", daemon=True).start()

    def delay(self) -> float | None:
        """The delay of the newest canary in seconds, more when the next one is overdue; None before the first."""
        arrived = self._arrived
        if arrived is None:
            return None
        took, sent = arrived
        return max(took, time.time() - sent - EVERY_SECONDS)

    def _follow(self) -> None:
        while True:
            try:
                record = self._consumer.poll(1.0)
            except KafkaException as error:
                log.warning("canary_not_followed", reason=error.args[0].str())
                continue
            if record is None or record.error() is not None:
                continue
            now = time.time()
            match decode(record.value()):
                case Canary(site=site, sent_at=sent) if site != self._site:
                    self._arrived = now - sent / 1_000_000, sent / 1_000_000
                    self._on_arrival()


class MirrorStatus(msgspec.Struct, frozen=True):
    """What the guard returns at `GET /mirror`.

    `state` is `active` where no mirror is expected, because the site is the active one. `delay_seconds` is the
    canary's, and `lag` was measured just now; both are None if unknown. `last` is the newest lag that was measured, and
    `last_age_seconds` its age.
    """

    site: str
    source: str
    state: Literal["active"] | MirrorState
    delay_seconds: float | None = None
    lag: LastLag | None = None
    last: LastLag | None = None
    last_age_seconds: float | None = None


class MirrorAlarm:
    """Late or unknown is an alarm once it lasts `ALARM_SECONDS`. Each change of `state` is logged once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self.state: MirrorState = "in_time"

    def look(self, status: MirrorStatus) -> None:
        """With each new status."""
        now: MirrorState = status.state if status.state != "active" else "in_time"
        if now == "in_time":
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        if now == self.state or (self._since is not None and self._clock() - self._since < ALARM_SECONDS):
            return
        self.state = now
        report = log.info if now == "in_time" else log.warning
        events = None if status.lag is None else status.lag.total
        report(f"mirror_{now}", delay_seconds=status.delay_seconds, events=events, source=status.source)


class MirrorMetrics(Collector):
    """At the passive site; a number that is not known is absent."""

    def __init__(self, status: Callable[[], MirrorStatus]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Describes nothing: otherwise the registry would collect before there are values."""
        return ()

    def collect(self) -> Iterable[Metric]:
        status = self._status()
        if status.state == "active":
            return
        lag, delay = status.lag, status.delay_seconds
        numbers = (
            ("known", "1 where lag and delay are known, else 0", float(status.state != "unknown")),
            ("delay_seconds", "The canary's, from the other site's commit to this one's", delay),
            ("lag_seconds", "Age of the oldest event not yet here", None if lag is None else lag.seconds),
            ("last_known_age_seconds", "Time since the lag was last measured", status.last_age_seconds),
        )
        for name, about, number in numbers:
            if number is not None:
                yield GaugeMetricFamily(f"daybook_mirror_{name}", about, number)
        if lag is not None:
            about = "Committed at the other site and not yet here"
            events = GaugeMetricFamily("daybook_mirror_lag_events", about, labels=["topic"])
            for topic, count in lag.events.items():
                events.add_metric([topic], count)
            yield events


def lag_by_topic(measured: MirrorLag, source: str, epoch: int, now: int) -> LastLag:
    """The same, as it is kept; `now` in micros UTC."""
    events: dict[str, int] = {}
    for (topic, _), count in measured.events.items():
        events[topic] = events.get(topic, 0) + count
    return LastLag(source, epoch, now, round(measured.oldest_seconds, 3), events, measured.exact)


class Measure:
    """Each second: a canary from the active site, the mirror's lag at the passive one, and a row in the database."""

    def __init__(
        self,
        site: Address,
        other: Address,
        pulse: MirrorPulse,
        control: Callable[[], Control | None],
        database_url: str,
    ) -> None:
        self._site, self._other = site, other
        self._control, self._database_url, self._pulse = control, database_url, pulse
        self._sender = CanarySender(site.bootstrap, site.name)
        self._canaries = CanaryWatch(site.bootstrap, site.name, pulse.beat)
        self._alarm = MirrorAlarm()
        self._meter: MirrorMeter | None = None
        self._metered_epoch = 0
        self._lag: LastLag | None = None
        self._last: LastLag | None = None
        self._connection: asyncpg.Connection | None = None

    async def run(self) -> None:
        """For ever."""
        while True:
            due = time.monotonic() + EVERY_SECONDS
            control = self._control()
            if control is not None:
                if control.writing:
                    self._sender.send(control.role.epoch)
                await self._measure(control)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def status(self) -> MirrorStatus:
        """As of now, from any thread: a measurement that takes too long is not known."""
        control, now, last = self._control(), now_micros(), self._last
        age = None if last is None else last.age(now)
        names = self._site.name, self._other.name
        if control is not None and control.role.role == "active":
            return MirrorStatus(*names, "active", last=last, last_age_seconds=age)
        lag = self._lag
        if lag is None or lag.age(now) > OUTDATED_SECONDS:
            return MirrorStatus(*names, "unknown", last=last, last_age_seconds=age)
        delay = self._canaries.delay()
        late = max(lag.seconds, delay or 0.0) > LATE_SECONDS
        state: MirrorState = "late" if late else "unknown" if delay is None else "in_time"
        return MirrorStatus(*names, state, delay, lag, last, age)

    async def _measure(self, control: Control) -> None:
        if control.role.role != "passive":
            self._lag = None
        elif self._lag is None or self._lag.exact or self._lag.age(now_micros()) > FAR_SECONDS:
            self._lag = await asyncio.to_thread(self._measured, control.role.epoch)
            self._last = self._lag or self._last
        self._alarm.look(self.status())
        await self._row(control)

    async def _row(self, control: Control) -> None:
        lag, passive = self._lag, control.role.role == "passive"
        stored = None if lag is None else msgspec.json.encode(lag).decode()
        events = None if lag is None else lag.total
        seconds = self._canaries.delay() if passive else None
        row = (self._site.name, control.role.role, control.role.epoch, events, seconds, stored)
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._database_url, timeout=5, command_timeout=5)
            if self._last is None:
                self._last = await stored_lag(self._connection, self._site.name)
            await self._connection.execute(_ROW, *row)
        except DATABASE_ERRORS as error:
            # before the first migration, or while PostgreSQL is away; it is repeated after a second
            log.warning("row_not_written", reason=repr(error))

    def _measured(self, epoch: int) -> LastLag | None:
        """The mirror's lag; None where the other site does not respond.

        Each epoch and each silence gets a new meter: afterwards the mirror, its positions or the whole other site
        may be new.
        """
        if self._meter is not None and epoch != self._metered_epoch:
            self._forget()
        if self._meter is None:
            self._meter = MirrorMeter(self._other.bootstrap, self._site.bootstrap, self._other.name)
            self._metered_epoch = epoch
        meter = self._meter
        try:
            measured = meter.read(LAG_SECONDS)
        except TimeoutError:
            self._forget()
            return None
        finally:
            self._pulse.copied_to(meter.reached)
        return lag_by_topic(measured, self._other.name, epoch, now_micros())

    def _forget(self) -> None:
        if self._meter is not None:
            self._meter.close()
            self._meter = None
