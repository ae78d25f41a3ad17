"""Clients' keys and tokens after a failover: repeats of what was acknowledged, reads with old tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

import aiohttp
import httpx

from infra.base.waiting import wait_until_async
from infra.dr.losses import Report
from infra.lab.drills.acknowledged import Acknowledgement
from infra.lab.drills.load import ATTEMPT_SECONDS, PAUSE_SECONDS, Urls, attempt
from infra.lab.drills.pair import DrillFailed, Pair
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Request
from infra.lab.retail.requests import Api

SAMPLE = 40
TOKENS = 6
REPEAT_SECONDS = 60.0


def check_repeats(
    pair: Pair,
    report: DrillReport,
    told: Sequence[Acknowledgement],
    sent: dict[str, Request],
    gone: Collection[str],
    site: str,
    epoch: int,
) -> list[Acknowledgement]:
    """Repeat the newest answers of the time before `epoch`, and every second lost command twice.

    `gone` are the ids of lost commands. What crossed is answered as before, what did not is executed once.
    Answers what clients were told.
    """
    before = [each for each in told if each.site != site and each.epoch < epoch]
    crossed = [each for each in before if each.command_id not in gone][-SAMPLE:]
    again = [each for each in before if each.command_id in gone][::2]
    asked = [sent[each.command_id] for each in (*crossed, *again, *again)]
    answers = asyncio.run(_repeat(pair.urls()[site], site, asked))
    same = answers[: len(crossed)]
    first, second = answers[len(crossed) : len(crossed) + len(again)], answers[len(crossed) + len(again) :]
    report.nothing(
        "repeats of what crossed, answered otherwise",
        [_both(old, new) for old, new in zip(crossed, same, strict=True) if _meaning(old) != _meaning(new)],
    )
    report.nothing(
        "repeats of what was lost, executed twice",
        [_both(one, two) for one, two in zip(first, second, strict=True) if _meaning(one) != _meaning(two)],
    )
    report.figures["repeats of what crossed"] = len(crossed)
    report.figures["repeats of what was lost"] = len(again)
    return [*same, *first, *second]


def check_tokens(
    pair: Pair, report: DrillReport, told: Sequence[Acknowledgement], lost: Report, site: str, epoch: int
) -> None:
    """A token from before works after, or says that its write was lost."""
    missing = {record.event_id for loss in lost.losses for record in loss.events}
    old = [each for each in told if each.event_id and each.epoch < epoch and each.kind != "delivery"]
    crossed = [each for each in old if each.event_id not in missing][-TOKENS:]
    gone = [each for each in old if each.event_id in missing][:TOKENS]
    wrong = []
    with httpx.Client(base_url=pair.urls()[site][Api.QUERY], timeout=30, trust_env=False) as client:
        for each, wanted in (*((each, 200) for each in crossed), *((each, 410) for each in gone)):
            answer = client.get(f"/orders/{each.entity}", headers={"Consistency-Token": each.token})
            if answer.status_code != wanted:
                wrong.append(f"{each.entity} version {each.version}: {answer.status_code}, not {wanted}")
    report.nothing(f"tokens of {len(crossed)} kept and {len(gone)} lost writes, answered wrongly", wrong)


async def _repeat(urls: Urls, site: str, asked: Sequence[Request]) -> list[Acknowledgement]:
    """One after the other: what follows another of the same order comes after it."""
    timeout = aiohttp.ClientTimeout(total=ATTEMPT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        return [await _until_answered(session, urls, site, request) for request in asked]


async def _until_answered(
    session: aiohttp.ClientSession, urls: Urls, site: str, request: Request
) -> Acknowledgement:
    told = await wait_until_async(
        lambda: attempt(session, urls, site, request, time.time()),
        f"{site} responds to {request.path} {request.key}",
        REPEAT_SECONDS,
        every=PAUSE_SECONDS,
        error=DrillFailed,
    )
    assert told is not None
    return told


def _meaning(told: Acknowledgement) -> tuple[str, int, str]:
    return told.answer, told.version, told.event_id


def _both(old: Acknowledgement, new: Acknowledgement) -> str:
    return f"{old.kind} of {old.entity}: {_meaning(old)}, then {_meaning(new)}"
