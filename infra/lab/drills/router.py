"""Clients behind the router: planned switchovers, one after another, of which they see nothing but some 503s."""

import asyncio
import time
from dataclasses import replace
from functools import partial

from infra.base.waiting import wait_until
from infra.dr.plan import entrance
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, Run, all_have_outcomes
from infra.lab.drills.judgement import check_equal, check_nothing_lost, not_logged
from infra.lab.drills.pair import Sides, both_sites, copying
from infra.lab.load.load import CONCURRENCY, repeat
from infra.lab.load.shop import urls_of
from infra.stack.shop import ROUTER

SWITCHES, ORDERS, RATE = 10, 10_000, 20.0
ORDERS_SECONDS, REPEAT_SECONDS = 300.0, 120.0
# Of the APIs and of the router: a repeat resolves each.
UNAVAILABLE = {
    "site_quiesced",
    "site_passive",
    "site_taking_over",
    "no_active_site",
    "site_unreachable",
    "outcome_unknown",
    "log_unavailable",
}


def _behind_the_router(run: Run) -> Sides:
    """Both sites, whose clients know only the router."""
    sides = both_sites(run)
    settings = sides.pair.settings
    urls = {ROUTER: urls_of(entrance(settings).addresses, settings)}
    return replace(sides, urls=urls, site=ROUTER, reads_at=ROUTER)


def _switch(course: Course[Sides], switches: int, orders: int) -> None:
    """So many switchovers while so many orders are placed."""
    pair = course.rig.pair
    check_nothing_lost(course.report, pair, course.run.folder)
    for number in range(1, switches + 1):
        _await_orders(course, orders * number / (switches + 1))
        _active, passive, epoch = pair.roles()
        # the command itself waits until everything is copied
        wait_until(partial(copying, passive), "the mirror copies", ORDERS_SECONDS, error=DrillFailed)
        course.show(f"switchover {number} of {switches}, to {passive.name}")
        typed = time.time()
        pair.run("failover", "--planned", "--to", passive.name)
        gap = course.write_gap(typed)
        course.report.story.append(
            f"{passive.name} active in epoch {epoch + 1}, writes paused for {gap:.1f} s."
        )
    _await_orders(course, orders)


def _await_orders(course: Course[Sides], orders: float) -> None:
    wait_until(
        lambda: sum(response.kind == "order" for response in list(course.load.responses)),
        "the orders are placed",
        ORDERS_SECONDS,
        enough=lambda placed: placed >= orders,
        error=DrillFailed,
    )


def _errors_are_503s(course: Course[Sides], _: object) -> None:
    report, failed, reads = course.report, course.load.failed, course.reads.failures()
    report.figures["orders"] = sum(response.kind == "order" for response in course.responses)
    for code, count in failed.items():
        report.figures[f"attempts with {code}"] = count
    report.none(
        "attempts of writes that failed otherwise than by a 503",
        [f"{count} {code}" for code, count in failed.items() if code not in UNAVAILABLE],
    )
    report.figures["reads served"], report.figures["reads refused"] = course.reads.succeeded, reads.total()
    wrong = [f"{count} {what}" for what, count in reads.items() if not what.startswith("503 ")]
    report.none("reads that failed otherwise than by a 503", wrong)


def _keys_have_one_response(course: Course[Sides], _: object) -> None:
    """Every command once more, with its key, through the router."""
    course.show("every command once more")
    load = course.load
    before = {response.command_id: response for response in load.responses}
    requests = [load.sent[command_id] for command_id in before]
    after = asyncio.run(repeat(course.rig.urls, ROUTER, requests, REPEAT_SECONDS, CONCURRENCY))
    different = [
        f"{old.kind} of {old.entity}: {old.body}, then {new.body}"
        for new in after
        if (old := before[new.command_id]) and (old.outcome, old.body) != (new.outcome, new.body)
    ]
    course.report.figures["repeats"] = len(after)
    course.report.none("repeats with another response than the first time", different)


def _nothing_is_lost(course: Course[Sides], _: object) -> None:
    course.show("comparing both sites")
    pair = course.rig.pair
    active, passive, _epoch = pair.roles()
    course.report.none("acknowledged writes lost", not_logged(active.bootstrap, course.responses))
    pair.await_rest(active)
    pair.await_mirrored(active, passive)
    check_equal(course.report, active, passive)


def routed(switches: int = SWITCHES, orders: int = ORDERS, rate: float = RATE) -> Drill[Sides, None]:
    """The drill with so many switchovers, at least so many orders, and so many commands a second."""
    return Drill(
        "routed",
        f"Place {orders:,} orders through the router over {switches} switchovers: no error but 503s, no two responses.",
        rig=_behind_the_router,
        clients=Clients("o", rate=rate),
        faults=lambda course: _switch(course, switches, orders),
        promises=(all_have_outcomes, _errors_are_503s, _keys_have_one_response, _nothing_is_lost),
        minutes=30,
    )
