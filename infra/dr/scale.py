"""More or fewer processes of one kind while the shop runs: `daybook scale`.

The record of a service's slot layout in `site.control` says how many slots it has, and who owns which partition. A
change closes the old layout, shuts every owner out, and opens the new one; the workers follow the record. Whatever
step an interruption hits, the same command continues (docs/adr/0022-scale-out.md).
"""

from collections.abc import Callable
from functools import partial

from contracts.topics import TOPICS
from infra.base.errors import NotDone
from infra.base.ports import require_free
from infra.base.settings import FURTHER, MOST, StackSettings
from infra.base.waiting import wait_until
from infra.dr.overview import worker_health
from infra.log.control import change_layout, read_site
from infra.log.event_log import EVENT_TOPICS
from infra.stack.platform import Platform, platform_of
from infra.stack.shop import WORKERS, instances, kind_of
from infra.stack.site import Site
from services.kernel.log.control import Control
from services.kernel.log.reader import partitions_of

READY_SECONDS = 180.0
# What can be scaled: slots under the name of their service, everything else under the name of the process.
SCALABLE = (*WORKERS, *(kind for kind in FURTHER if kind not in WORKERS.values()))


def scale(settings: StackSettings, what: str, count: int, show: Callable[[str], None]) -> list[str]:
    """Run `count` slots of a service, or `count` processes of another kind, from now on. Returns their names.

    Raises DaybookError, KafkaException, TimeoutError or OwnershipLost; a second call continues.
    """
    site, platform, kind = Site(settings), platform_of(settings), WORKERS.get(what, what)
    with site.journal.sole_change(f"scale {what} {count}"):
        control = _require_possible(platform, site)
        _require_partitions(site.bootstrap, what, count)
        _require_ports(platform, site, instances(kind, count))
        number = 0
        if what in WORKERS:
            number = _change_slots(platform, site, control, what, count, show)
        platform.scale(site, kind, count)
        show("waiting until the processes are ready")
        wait_until(
            partial(_missing, platform, site, kind, count, number),
            "the processes are ready",
            READY_SECONDS,
            enough=lambda missing: not missing,
            error=lambda late: NotDone(
                f"after {late.seconds:.0f} s {', '.join(late.last)}: see `./daybook status`, then repeat the command"
            ),
        )
    return instances(kind, count)


def _change_slots(
    platform: Platform, site: Site, control: Control, service: str, slots: int, show: Callable[[str], None]
) -> int:
    """Share the partitions anew. Returns the number of the layout."""
    layout = control.layout(service)
    if slots > layout.slots:  # they wait until the layout has their slot
        show("starting processes")
        platform.scale(site, WORKERS[service], slots)
    if layout.number < 0 or layout.slots != slots:
        show("handing over the partitions")
        layout = change_layout(site.bootstrap, service, slots)
    return layout.number


def _require_possible(platform: Platform, site: Site) -> Control:
    """The site's control records. Raises NotDone unless the site runs and accepts writes."""
    if not platform.up(site):
        raise NotDone("the stack is not running: `./daybook up` starts it")
    if site.settings.stack == "compose" and len(platform.sites()) > 1:
        raise NotDone("two sites in containers cannot be scaled: use the embedded stack")
    control = read_site(site.bootstrap)
    if control.role.role != "active":
        raise NotDone(f"{site.name} is {control.role.role}: scale the active site, see `./daybook sites`")
    if control.held:
        raise NotDone(f"{site.name} refuses writes ({control.held}): try again when it accepts them")
    return control


def _require_partitions(bootstrap: str, what: str, count: int) -> None:
    """Raises NotDone where some of the processes would have nothing to do."""
    service = what.removesuffix("-api")
    topics: tuple[str, ...] = ()
    remedy = ""
    if what in WORKERS:
        topics = (TOPICS[what].commands,)
        remedy = f": first run `./daybook topics repartition {what} --partitions {count}`"
    elif service in WORKERS:
        topics = (TOPICS[service].outcomes,)
    elif what == "projection":
        topics = EVENT_TOPICS
    partitions = {topic: len(partitions_of(bootstrap, topic)) for topic in topics}
    if partitions and count > max(partitions.values()):
        named = " and ".join(f"{topic} has {number} partitions" for topic, number in partitions.items())
        raise NotDone(f"{named}, and each process needs one{remedy}")
    if count > MOST:
        raise NotDone(f"at most {MOST} processes of a kind have ports on one machine")


def _require_ports(platform: Platform, site: Site, names: list[str]) -> None:
    """Raises PortTaken where another program has the port of a process that is to be started."""
    for name in sorted({*names} - {*platform.processes(site)}):
        for port in site.settings.ports(name):
            require_free(port, name, "DAYBOOK_PORT_BASE")


def _missing(platform: Platform, site: Site, kind: str, count: int, layout: int) -> list[str]:
    """What still has to happen, in words. A process that an operator keeps down is not waited for."""
    processes, names = platform.processes(site), instances(kind, count)
    missing = [f"{name} still runs" for name in processes if kind_of(name) == kind and name not in names]
    for name in set(names) - site.journal.held():
        process = processes.get(name)
        ready = process is not None and process.running and process.ready
        if kind in WORKERS.values():
            responds, body = worker_health(site, name)
            ready = responds and body.get("layout") == layout
        if not ready:
            missing.append(f"{name} is not ready")
    return sorted(missing)
