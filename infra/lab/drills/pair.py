"""The two sites under drill, driven by the commands that an operator types, and the faults that a drill injects."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from infra.base.background import Background
from infra.base.settings import ROOT, StackSettings
from infra.base.waiting import wait_until
from infra.dr.failover import Failover
from infra.dr.losses import Report
from infra.dr.mirror import MirrorMeter
from infra.dr.plan import controls
from infra.dr.reconcile import load as load_report
from infra.lab.drills.drill import DrillFailed, Run
from infra.lab.load.clients import Urls
from infra.lab.load.load import Load
from infra.lab.load.shop import api_urls, await_rest
from infra.log.control import PATIENT_SECONDS, READ_SECONDS
from infra.stack.link import LinkState, set_links
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR, http_ready
from infra.stack.site import Site
from services.kernel.log.control import Control, ControlSource
from services.kernel.log.reader import NotKnown

COMMAND_SECONDS = 2400.0  # a failback waits up to half an hour for the mirror alone
REST_SECONDS = 180.0
MIRRORED_SECONDS = 300.0  # a mirror between clusters starts slowly
ROLES_SECONDS = 60.0
DEMOTED_SECONDS = 180.0  # its workers have to start beside another site that is at work
# A drill kills sites for minutes: no order expires meanwhile.
SETTLE_SECONDS = 600
FOLLOW_EVERY_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 0.25  # between two kills
WORKERS = ("order-worker", "inventory-worker")


class Pair:
    """Both sites; `settings` are home's."""

    def __init__(self, settings: StackSettings) -> None:
        self.settings = settings
        self._daybook = (sys.executable, "-m", "infra.cli", "--stack", settings.stack)
        self.platform = platform_of(settings)
        self._sites: Mapping[str, Site] = {}
        self.environment = {
            **os.environ,
            "DAYBOOK_HOME": str(settings.named_home),
            "DAYBOOK_PORT_BASE": str(settings.port_base),
            "DAYBOOK_SITE": "home",
            "DAYBOOK_STACK": "embedded",
            "DAYBOOK_SETTLE_SECONDS": os.environ.get("DAYBOOK_SETTLE_SECONDS", str(SETTLE_SECONDS)),
            "COLUMNS": "160",
        }

    def start(self, brokers: int = 1) -> None:
        """Start two new sites, with so many brokers each and a mirror that copies. Raises DrillFailed."""
        if self.settings.home.exists():
            self.run("clean", "--yes")
        self.run("up", "--sites", "2", "--brokers", str(brokers))
        active, passive, _ = self.roles()
        self.await_mirrored(active, passive)

    @property
    def sites(self) -> Mapping[str, Site]:
        if len(self._sites) < 2:
            self._sites = self.platform.sites()
        return self._sites

    def other(self, site: Site) -> Site:
        return next(other for other in self.sites.values() if other.name != site.name)

    @property
    def urls(self) -> dict[str, Urls]:
        """The APIs of each site."""
        return {name: api_urls(site.settings) for name, site in self.sites.items()}

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`./daybook …`, under way; its output is dropped."""
        return subprocess.Popen(
            [*self._daybook, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *arguments: str, typed: str = "") -> str:
        """The output of `./daybook …`; `typed` is its input, with line ends.

        Raises DrillFailed, with the whole output, unless its exit code is 0.
        """
        process = subprocess.run(
            [*self._daybook, *arguments],
            cwd=ROOT,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if process.returncode != 0:
            output = f"{process.stdout}{process.stderr}".strip()
            raise DrillFailed(f"`daybook {' '.join(arguments)}` ended with {process.returncode}:\n{output}")
        return process.stdout

    def fail_over(self, to: Site) -> Failover:
        """Type the failover to the other site than the lost one. Raises DrillFailed."""
        output = self.run("failover", "--unplanned", "--to", to.name, "--confirm", to.name, "--json")
        return msgspec.json.decode(output, type=Failover)

    def losses(self, file: Path) -> Report:
        """What `failover report` says; it stays in the file. Raises DrillFailed."""
        self.run("failover", "report", "--out", str(file))
        return load_report(file)

    def roles(self) -> tuple[Site, Site, int]:
        """The active site, the passive one, and the epoch. Raises DrillFailed unless both sites confirm it, which takes
        brokers of two clusters on one machine a while when they are busy."""
        states = wait_until(
            self._controls,
            "both sites respond",
            ROLES_SECONDS,
            enough=lambda states: None not in states.values(),
            error=lambda late: DrillFailed(f"{late}; if one is lost: `./daybook site rebuild NAME` first"),
        )
        return self._roles_in(states)

    def _controls(self) -> dict[str, Control | None]:
        return controls(self.sites, PATIENT_SECONDS)

    def _roles_in(self, states: Mapping[str, Control | None]) -> tuple[Site, Site, int]:
        active = [name for name, state in states.items() if state and state.role.role == "active"]
        passive = [name for name, state in states.items() if state and state.role.role == "passive"]
        if len(active) != 1 or len(passive) != 1:
            raise DrillFailed(f"no active and passive site: {active} active, {passive} passive")
        state = states[active[0]]
        assert state is not None
        return self.sites[active[0]], self.sites[passive[0]], state.role.epoch

    def await_mirrored(self, active: Site, passive: Site) -> None:
        """Wait until a mirror copies and is exactly caught up. Raises DrillFailed."""
        wait_until(partial(copying, passive), "the mirror copies", MIRRORED_SECONDS, error=DrillFailed)
        with MirrorMeter(active.link, passive.bootstrap, active.name) as meter:
            meter.wait(0, MIRRORED_SECONDS, DrillFailed)

    def await_rest(self, site: Site) -> None:
        """Wait until nothing is under way at a site. Raises NotAtRest."""
        await_rest(site.name, api_urls(site.settings), REST_SECONDS)

    def await_demoted(self, site: Site, epoch: int) -> None:
        """Wait until a site that has returned is passive and its workers stand by. Raises DrillFailed."""

        def roles() -> dict[str, object]:
            _, passive, newest = self._roles_in(self._controls())
            workers = all(http_ready(site.settings.health_url(name)) for name in WORKERS)
            return {"passive": passive.name, "epoch": newest, "workers ready": workers}

        wait_until(
            roles,
            f"{site.name} is demoted",
            DEMOTED_SECONDS,
            enough=lambda state: state == {"passive": site.name, "epoch": epoch, "workers ready": True},
            later=(DrillFailed,),
            error=DrillFailed,
        )

    def cut(self) -> None:
        """Neither site reaches the other."""
        set_links(self.sites.values(), LinkState(cut=True))

    def reconnect(self) -> None:
        set_links(self.sites.values(), LinkState())


def copying(passive: Site) -> bool:
    """Whether a canary has come through the site's mirror lately."""
    mirror = platform_of(passive.settings).processes(passive).get(MIRROR)
    return mirror is not None and mirror.ready


@dataclass(frozen=True)
class Sides:
    """The sites when a drill begins: the active one, the other, and the epoch. The rest is as of a `Rig`."""

    pair: Pair
    active: Site
    other: Site
    epoch: int
    urls: Mapping[str, Urls]
    site: str
    reads_at: str

    @property
    def run_id(self) -> str:
        return str(self.epoch)


def both_sites(run: Run) -> Sides:
    """One active site, one passive, and a mirror that is caught up. Raises DrillFailed."""
    pair: Pair = run.target
    active, passive, epoch = pair.roles()
    pair.await_mirrored(active, passive)
    return Sides(pair, active, passive, epoch, pair.urls, active.name, reads_at=passive.name)


class Kind(StrEnum):
    """`DEAD`: kill -9 of everything; `FROZEN`: SIGSTOP of everything; `CUT`: alive, but out of reach."""

    DEAD = "dead"
    FROZEN = "frozen"
    CUT = "cut off"


@dataclass(frozen=True)
class Damage:
    """What was done to `site`, in `order`; it began at `at`, in seconds since 1970."""

    site: Site
    kind: Kind
    order: tuple[str, ...]
    at: float


def damage(pair: Pair, site: Site, kind: Kind, random: Random) -> Damage:
    """Damage a site in the middle of its work, its processes in random order."""
    if kind is Kind.CUT:
        at = time.time()
        pair.cut()
        return Damage(site, kind, ("link",), at)
    if not pair.platform.up(site):
        raise DrillFailed(f"{site.name} does not run")
    order = [name for name, process in pair.platform.processes(site).items() if process.running]
    random.shuffle(order)

    def wait() -> None:
        time.sleep(random.choice((0.0, 0.0, random.uniform(0, LONGEST_PAUSE_SECONDS))))

    at = time.time()
    if kind is Kind.DEAD:
        pair.platform.kill_site(site, order, wait)
    else:
        pair.platform.pause_site(site, order, wait)
    return Damage(site, kind, tuple(order), at)


def repair(pair: Pair, done: Damage) -> None:
    """Resume a frozen site or reconnect one that was cut off; a dead one stays dead."""
    match done.kind:
        case Kind.CUT:
            pair.reconnect()
        case Kind.FROZEN:
            pair.platform.resume_site(done.site)
        case Kind.DEAD:
            pass


class Following(Background):
    """Clients that find the new site by themselves, as with a name service or a load balancer.

    Sends the clients to `site` as soon as it accepts requests in an epoch beyond `epoch` (a lost site whose broker is
    started to read its disk still says active), at the latest when the block ends.
    """

    def __init__(self, load: Load, site: Site, epoch: int) -> None:
        super().__init__("following")
        self._load, self._site, self._epoch = load, site, epoch

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._load.switch(self._site.name)

    def _work(self) -> None:
        source = ControlSource(self._site.bootstrap)
        try:
            while not self._stopping.wait(FOLLOW_EVERY_SECONDS):
                if self._accepts_requests(source):
                    self._load.switch(self._site.name)
                    return
        finally:
            source.close()

    def _accepts_requests(self, source: ControlSource) -> bool:
        try:
            control = source.read(READ_SECONDS)
            return control.taking and control.role.epoch > self._epoch
        except NotKnown:
            return False
