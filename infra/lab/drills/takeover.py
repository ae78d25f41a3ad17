"""Loss of the active site under load, measured: dead, frozen or cut off, also while clients still reach it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from infra.dr.losses import Report
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, Range, all_have_outcomes
from infra.lab.drills.judgement import (
    check_losses,
    check_nothing_lost,
    check_repeats,
    check_tokens,
    event_epochs,
    judge,
    not_logged,
)
from infra.lab.drills.pair import Damage, Kind, Sides, both_sites, damage, repair
from infra.lab.drills.report import RPO, RTO, step_line
from infra.lab.load.clients import CommandResponse
from infra.log.control import read_site
from infra.stack.shop import MIRROR

LOST_SECONDS = 2.0
FIRST_WRITE_SECONDS = 30.0
LOST_BROKER_SECONDS = 10.0
READ_GAP_SECONDS = 5.0
LAST_WRITE_SECONDS = 10.0
WARM = (6.0, 12.0)  # seconds of load before the fault
NOTICED = (0.3, 2.5)  # until the operator types the command
AFTER_SECONDS = 8.0
APART_RATE = 30.0  # of each group of clients
OLD_CLIENTS, NEW_CLIENTS = Clients("s", "-old", APART_RATE), Clients("s", "-new", APART_RATE)
APART_WARM, APART = (4.0, 8.0), (4.0, 9.0)
WATCHED_SECONDS = 6.0
FROZEN = (2.0, 20.0)
ON_BOTH = '"durability":"both-sites"'  # in the body of a response


@dataclass
class TakenOver:
    """An unplanned failover. `typed`: when the command was typed; `lost`: what the disk of the old site says did not
    cross; `again`: the responses to repeats."""

    damage: Damage
    typed: float
    again: list[CommandResponse] = field(default_factory=list)
    lost: Report | None = None


def _lose_the_active_site(course: Course[Sides], kind: Kind | None) -> TakenOver:
    active, passive = course.rig.active, course.rig.other
    check_nothing_lost(course.report, course.rig.pair, course.run.folder)
    chosen = course.random.choice(list(Kind)) if kind is None else kind
    course.sleep(WARM)
    course.show(f"{active.name}: {chosen}")
    done = damage(course.rig.pair, active, chosen, course.random)
    course.running.callback(repair, course.rig.pair, done)  # also where the failover fails
    course.sleep(NOTICED)
    course.show(f"failover to {passive.name}")
    # Clients are sent to the other site when the command begins.
    course.load.switch(passive.name)
    typed = time.time()
    failover = course.rig.pair.fail_over(passive)
    time.sleep(AFTER_SECONDS)
    course.report.story += [
        f"{active.name} was {done.kind}: {', '.join(done.order)}.",
        *map(step_line, failover.steps),
    ]
    return TakenOver(done, typed)


def reads_go_on(course: Course[Sides], _: object) -> None:
    """At the passive site, whatever happens to the active one."""
    gap = course.reads.gap()
    course.report.at_most("longest time without reads at the passive site", gap, READ_GAP_SECONDS)
    course.report.figures["reads served"] = course.reads.succeeded


def _writes_go_on(course: Course[Sides], taken: TakenOver) -> None:
    """From the command to the first new acknowledgement, and how long clients had none."""
    report = course.report
    new = [response.at for response in course.load.responses if response.epoch > course.rig.epoch]
    if not new:
        raise DrillFailed(f"{course.rig.other.name} has acknowledged nothing since the failover")
    bound = FIRST_WRITE_SECONDS + lost_broker_seconds(course)
    report.at_most("from the command to the first acknowledged write", min(new) - taken.typed, bound)
    # It includes the operator's hesitation.
    report.figures[RTO] = course.write_gap(taken.damage.at)


def lost_broker_seconds(course: Course[Sides]) -> float:
    """How much longer a switch may take on clusters, where a broker of the new site dies meanwhile."""
    return LOST_BROKER_SECONDS if course.rig.other.settings.brokers > 1 else 0.0


def _losses(course: Course[Sides]) -> tuple[Report, list[CommandResponse]]:
    """The list of the command, checked against the clients' own responses."""
    course.show("failover report")
    sides, load = course.rig, course.load
    lost = sides.pair.losses(course.run.folder / "lost.json")
    bootstrap = sides.other.bootstrap
    return lost, check_losses(
        course.report, bootstrap, load.responses, sides.epoch + 1, lost, load.sent.keys()
    )


def _losses_are_listed(course: Course[Sides], taken: TakenOver) -> None:
    report, sides, done = course.report, course.rig, taken.damage
    if done.kind is not Kind.DEAD:
        course.show(f"{sides.active.name} returns")
        sides.pair.await_demoted(sides.active, sides.epoch + 1)
    taken.lost, gone = _losses(course)
    by_old = [response.at for response in course.load.responses if response.site == sides.active.name]
    last = max(by_old, default=done.at)
    end = min(last, done.at) if done.kind is Kind.CUT else last
    window = max((end - response.at for response in gone), default=0.0)
    report.at_most(RPO, max(0.0, window), LOST_SECONDS)
    report.figures["events lost"] = sum(len(loss.events) for loss in taken.lost.losses)
    report.figures["partially mirrored transactions"] = len(taken.lost.torn_transactions)


def _repeats_and_tokens_hold(course: Course[Sides], taken: TakenOver) -> None:
    sides, lost = course.rig, taken.lost
    assert lost is not None
    course.show("repeats of what was acknowledged before")
    gone = {loss.command_id for loss in lost.losses}
    taken.again = check_repeats(course, course.load.responses, gone)
    _reconcile(course)
    before = [response for response in course.load.responses if response.epoch <= sides.epoch]
    check_tokens(course.report, sides.urls[sides.other.name], before, lost)


def _reconcile(course: Course[Sides]) -> None:
    course.rig.pair.run("failover", "reconcile", "--reissue-all")
    course.show("coming to rest")
    course.rig.pair.await_rest(course.rig.other)


def _log_is_sound(course: Course[Sides], taken: TakenOver) -> None:
    new = course.rig.other
    judge(course.report, new.bootstrap, [*course.load.responses, *taken.again], taken.lost, new.database_url)


def unplanned(kind: Kind | None = None) -> Drill[Sides, TakenOver]:
    """The drill; `kind` is what happens to the active site, or None where the seed decides.

    Afterwards the other site is active.
    """
    return Drill(
        "unplanned",
        "Kill, freeze or disconnect the active site under load, fail over, and account for every write.",
        rig=both_sites,
        clients=Clients("u"),
        faults=lambda course: _lose_the_active_site(course, kind),
        promises=(
            all_have_outcomes,
            reads_go_on,
            _writes_go_on,
            _losses_are_listed,
            _repeats_and_tokens_hold,
            _log_is_sound,
        ),
    )


def _reported_on_both_is_kept(course: Course[Sides], taken: TakenOver) -> None:
    """By the clients' own journals, with how long such writes took until the site was lost."""
    report, responses = course.report, course.load.responses
    durable = [response for response in responses if ON_BOTH in response.body]
    report.none("reported as on both sites, and lost", not_logged(course.rig.other.bootstrap, durable))
    before = (response for response in durable if response.at < taken.damage.at)
    took = sorted(response.seconds for response in before if not response.repeats)
    report.figures["writes reported as on both sites"] = len(durable)
    for percent in (50, 99) if took else ():
        report.figures[f"p{percent} of these until the loss, ms"] = took[percent * len(took) // 100] * 1000


BOTH_SITES = replace(
    unplanned(Kind.DEAD),
    name="both-sites",
    claim="Kill the active site under writes that wait for both: none that was reported on both is lost.",
    clients=Clients("d", extra={"Durability": "both-sites"}),
    promises=(*unplanned().promises, _reported_on_both_is_kept),
)


@dataclass
class BothWrote:
    """Two sites that wrote: when, in seconds since 1970, the new one was promoted, both were reconnected, and the old
    one stood by. `lost` is what did not cross. The first clients are those of the old site."""

    promoted: float
    reconnected: float
    demoted: float
    lost: Report | None = None


def _cut_off(course: Course[Sides]) -> BothWrote:
    pair = course.rig.pair
    check_nothing_lost(course.report, pair, course.run.folder)
    course.sleep(APART_WARM)
    course.show("cut off from each other")
    course.running.callback(pair.reconnect)
    pair.cut()
    return _replace(course, APART, pair.reconnect)


def _replace(course: Course[Sides], apart: Range, reconnect: Callable[[], None]) -> BothWrote:
    """Promote the other site, which has clients of its own, and let the old one return. Its clients remain there."""
    pair, old, new = course.rig.pair, course.rig.active, course.rig.other
    pair.fail_over(new)
    promoted = time.time()
    course.start(NEW_CLIENTS, new.name)
    course.sleep(apart)
    course.show(f"{old.name} returns")
    reconnected = time.time()
    reconnect()
    pair.await_demoted(old, course.rig.epoch + 1)
    demoted = time.time()
    time.sleep(WATCHED_SECONDS)
    course.load.switch(new.name)
    return BothWrote(promoted, reconnected, demoted)


def _old_site_stops_writing(course: Course[Sides], both: BothWrote) -> None:
    report, old = course.report, course.rig.active
    by_old = [response for response in course.load.responses if response.site == old.name]
    accepted = [response.at for response in by_old if response.accepted]
    between = sum(both.promoted < at < both.reconnected for at in accepted)
    if read_site(old.bootstrap).lease_seconds:
        after = [response.command_id for response in by_old if response.at > both.promoted]
        report.none("acknowledged or refused after the promotion, by a site whose lease had ended", after)
    else:
        report.figures["acknowledged by the old site after the promotion, cut off"] = between
    last = max(0.0, max(accepted, default=both.reconnected) - both.reconnected)
    report.at_most("from contact to the old site's last acknowledgement", last, LAST_WRITE_SECONDS)
    late = [response.command_id for response in by_old if response.at > both.demoted + 1]
    report.none("responses of the old site after it was demoted", late)
    report.figures["from contact to an old site that stands by, s"] = both.demoted - both.reconnected


def _losses_of_the_old_site_are_listed(course: Course[Sides], both: BothWrote) -> None:
    both.lost, _ = _losses(course)
    stopped = MIRROR in course.rig.other.journal.held()
    course.report.promise(
        "the mirror into the new site", "held for good", "held" if stopped else "runs", stopped
    )


def _log_of_the_new_site_is_sound(course: Course[Sides], both: BothWrote) -> None:
    new = course.rig.other
    _reconcile(course)
    judge(course.report, new.bootstrap, course.responses, both.lost, new.database_url)


SPLIT_BRAIN = Drill(
    "split-brain",
    "Disconnect two live sites, promote the passive one, reconnect them: the old one must stop writing.",
    rig=both_sites,
    clients=OLD_CLIENTS,
    faults=_cut_off,
    promises=(
        all_have_outcomes,
        _old_site_stops_writing,
        _losses_of_the_old_site_are_listed,
        _log_of_the_new_site_is_sound,
    ),
)


def _replace_a_frozen_site(course: Course[Sides]) -> BothWrote:
    """It is replaced while its broker and some other processes are frozen."""
    pair, old = course.rig.pair, course.rig.active
    check_nothing_lost(course.report, pair, course.run.folder)
    course.sleep(APART_WARM)
    others = sorted({*pair.platform.processes(old)} - {"broker", MIRROR})
    frozen = ["broker", *course.random.sample(others, course.random.randint(0, len(others)))]
    course.random.shuffle(frozen)
    course.show(f"{old.name}: {', '.join(frozen)} are frozen")
    began = time.time()
    course.running.callback(pair.platform.resume_site, old)
    pair.platform.pause_site(old, frozen, lambda: None)
    course.sleep(NOTICED)
    both = _replace(course, FROZEN, lambda: pair.platform.resume_site(old))
    course.report.figures["frozen, s"] = both.reconnected - began
    course.report.figures["from its return to an old site that stands by, s"] = (
        both.demoted - both.reconnected
    )
    return both


def _replaced_site_acknowledges_nothing(course: Course[Sides], both: BothWrote) -> None:
    """By the clients' own journals: neither a success nor a refusal."""
    old = course.rig.active.name
    late = [
        f"{response.command_id} {response.outcome}, {response.at - both.reconnected:.2f} s after it ran again"
        for response in course.load.responses
        if response.site == old and response.at > both.promoted
    ]
    course.report.figures["responses of the old site before"] = sum(
        response.site == old for response in course.load.responses
    )
    course.report.none("acknowledged or refused by the old site after the promotion", late)


def _tokens_name_the_epoch_of_their_event(course: Course[Sides], both: BothWrote) -> None:
    """Also of what was repeated at the new site. The events of both logs are read."""
    accepted = [response for response in course.responses if response.accepted and response.event_id]
    gone = {loss.command_id for loss in both.lost.losses} if both.lost else set[str]()
    repeats = check_repeats(course, [row for row in course.load.responses if row.event_id], gone)
    # Read last: a repeat of what was lost is executed again, and makes an event.
    epochs = event_epochs(course.rig.active.bootstrap) | event_epochs(course.rig.other.bootstrap)
    wrong = [
        f"{response.entity} version {response.version}: {response.epoch}, not {epochs.get(response.event_id)}"
        for response in (*accepted, *repeats)
        if response.event_id and response.epoch != epochs.get(response.event_id)
    ]
    course.report.figures["tokens compared with their event"] = len(accepted) + len(repeats)
    course.report.none("tokens with another epoch than their event", wrong)


REPLACED = Drill(
    "replaced",
    "Freeze the active site under its clients, promote the other one, resume it: it must acknowledge nothing more.",
    rig=both_sites,
    clients=OLD_CLIENTS,
    faults=_replace_a_frozen_site,
    promises=(
        all_have_outcomes,
        _replaced_site_acknowledges_nothing,
        _losses_of_the_old_site_are_listed,
        _tokens_name_the_epoch_of_their_event,
        _log_of_the_new_site_is_sound,
    ),
)
