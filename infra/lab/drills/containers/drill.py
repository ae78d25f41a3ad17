"""Containers of the running shop are broken one after the other under load; then the log is judged.

The shop is looked at before, too: on one with earlier orders a drill judges what it did itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import httpx

from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.dr.steps import Show
from infra.lab.checker import Evidence, check, read_evidence
from infra.lab.drills.containers.blows import Blow
from infra.lab.drills.containers.outages import NEVER, Outage, tell
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.pair import DrillFailed
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from infra.lab.retail.shop import NotAtRest, Shop, api_urls
from infra.stack.compose.engine import Container, containers
from infra.stack.compose.failing import Broken, answers, undergo

WELL_SECONDS = 60.0
RATE = 10.0  # commands a second: the shop and its clients may share a small machine
CALM_SECONDS = (0.5, 3.0)
BACK_SECONDS = 240.0
REST_BEFORE_SECONDS, REST_SECONDS = 60.0, 300.0
POLL_SECONDS = 0.2


def whole_shop(settings: StackSettings) -> dict[str, Container]:
    """The containers that run, by service. Raises DrillFailed where one is not well: a drill must find whole
    what it breaks. The engine looks now and then; who has just come back from something is given time."""
    found: list[Container] = []

    def ill() -> list[str]:
        found[:] = containers(settings)
        if not found:
            raise DrillFailed("no container is there: `./daybook --stack compose up` starts them")
        return [f"{one.service} is {one.health or one.state}" for one in found if not one.fine]

    wait_until(
        ill,
        "every container is well",
        WELL_SECONDS,
        enough=lambda ill: not ill,
        every=1.0,
        error=lambda late: DrillFailed(f"before the drill: {late}; `down` and `up` make containers anew"),
    )
    return {one.service: one for one in found if one.state == "running"}


def break_containers(
    settings: StackSettings,
    whole: dict[str, Container],
    blows: Sequence[Blow],
    seconds: float,
    report: DrillReport,
    folder: Path,
    show: Show,
) -> None:
    """Hold the drill: each blow lasts `seconds`; `report` gets what was found, `folder` what clients heard.

    Raises DrillFailed where the shop was not sound before, EngineFailed where Docker fails. KeyboardInterrupt
    leaves every container mended.
    """
    show("looking at the shop before")
    _require_sound(settings)
    urls = api_urls(settings)
    shopping = Shopping(report.seed, f"containers-{time.time_ns():x}")
    load = Load({"home": urls}, "home", shopping, folder / "told.jsonl", RATE)
    with ReadProbe(urls[Api.QUERY]) as reads, load:
        outages = _one_after_the_other(whole, blows, seconds, load, report.seed, show)
        show("waiting for the last answers")
        unanswered = load.finish()
    tell(report, outages, load.told, reads)
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    report.figures["commands answered"] = len(load.told)
    report.figures["reads served"], report.figures["reads refused"] = reads.served, len(reads.refused)
    show("coming to rest")
    left = _under_way(settings, REST_SECONDS)
    report.promise("conversations and read models afterwards", "at rest", left or "at rest", not left)
    show("judging the log")
    judge(report, settings.kafka, load.told)


def _require_sound(settings: StackSettings) -> None:
    """Raises DrillFailed for what the drill would be blamed for: work under way, and an invariant that does
    not hold already."""
    if left := _under_way(settings, REST_BEFORE_SECONDS):
        raise DrillFailed(f"before the drill the shop is not at rest: {left}")
    found = check(Evidence(read_evidence(settings.kafka), at_rest=True))
    if found:
        first = f"{found[0].invariant}, {found[0].where}: {found[0].what}"
        raise DrillFailed(f"before the drill the log breaks an invariant {len(found)} times: {first}")


def _one_after_the_other(
    whole: dict[str, Container], blows: Sequence[Blow], seconds: float, load: Load, seed: int, show: Show
) -> list[Outage]:
    """Until all are done; after one that is not got over, nothing more is broken."""
    chance, outages = Random(f"moments {seed}"), list[Outage]()
    for number, blow in enumerate(blows, start=1):
        now = f"{number} of {len(blows)}: {blow}"
        show(now)
        time.sleep(chance.uniform(*CALM_SECONDS))
        broken = undergo(whole[blow.service].name, blow.failure, seconds)
        show(f"{now}, mended; waiting for everybody")
        outages.append(_got_over(blow, broken, whole.values(), load))
        if outages[-1].over == NEVER:
            break
    return outages


def _got_over(blow: Blow, broken: Broken, whole: Iterable[Container], load: Load) -> Outage:
    until, healthy = broken.mended + BACK_SECONDS, NEVER
    try:
        for one in whole:
            wait_until(partial(answers, one.name), f"{one.service} is healthy", until - time.time())
        healthy = since = time.time()
        again = wait_until(
            lambda: [each.at for each in load.told[-200:] if each.accepted and each.sent > since],
            "a command is accepted again",
            until - since,
        )
    except TooLate:
        return Outage(blow, broken, healthy)
    return Outage(blow, broken, healthy, min(again))


def _under_way(settings: StackSettings, seconds: float) -> str:
    """What has not come to its end within `seconds`; empty where all has."""
    try:
        with Shop(api_urls(settings)) as shop:
            shop.await_rest(seconds, lambda _: None)
    except (NotAtRest, httpx.HTTPError) as left:
        return str(left) or type(left).__name__
    return ""
