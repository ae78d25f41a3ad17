"""How long writes and reads rested while a container was away, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.lab.drills.acknowledged import Acknowledgement, longest_gap
from infra.lab.drills.containers.blows import Blow
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.report import DrillReport
from infra.stack.compose.failing import Broken

# A broker that is killed begins again from its disk, and busy machines are slow: what is promised is an end.
WITHOUT_WRITES_SECONDS = 120.0
NEVER = float("inf")


@dataclass(frozen=True)
class Outage:
    """A blow as it went, in seconds since 1970: when all containers answered again (`healthy`), and when a
    command sent after that was accepted (`over`); never is infinity."""

    blow: Blow
    broken: Broken
    healthy: float = NEVER
    over: float = NEVER


def tell(
    report: DrillReport, outages: Sequence[Outage], told: Sequence[Acknowledgement], reads: ReadProbe
) -> None:
    """A promise for each outage, and its figures beside."""
    for number, outage in enumerate(outages, start=1):
        what, broken = f"{number}. {outage.blow}", outage.broken
        gap, slowest = without_writes(told, broken.began, outage.over)
        healthy = outage.healthy - broken.mended
        report.at_most(f"{what}: seconds without an acknowledged write", gap, WITHOUT_WRITES_SECONDS)
        report.figures[f"{what}: until every container answered, s after it was mended"] = healthy
        report.figures[f"{what}: slowest answer to a command under way, s"] = slowest
        report.figures[f"{what}: longest time without a read, s"] = reads.gap(broken.began, outage.over)
        report.story.append(
            f"{outage.blow}, for {broken.mended - broken.began:.1f} s: no write was acknowledged for "
            f"{gap:.1f} s; {healthy:.1f} s after it was mended every container answered."
        )


def without_writes(told: Iterable[Acknowledgement], began: float, over: float) -> tuple[float, float]:
    """Of an outage: the longest stretch from one acknowledged write to the next, infinite where it was never
    over, and the longest that a command under way waited for its acceptance, in seconds."""
    accepted = [each for each in told if each.accepted]
    gap = NEVER if over == NEVER else longest_gap((each.at for each in accepted), began, over)[0]
    waited = [each.at - each.sent for each in accepted if each.sent <= over and each.at >= began]
    return gap, max(waited, default=0.0)
