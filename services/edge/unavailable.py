"""Errors of a command without an outcome: each becomes a 503 or 507 with its code; a retry is always safe."""

from __future__ import annotations

from collections.abc import Mapping

from services.edge.problems import EdgeError
from services.kernel.log.control import Control

SITE_PROBLEMS = {
    "passive": ("site_passive", 503, "this site is passive: the other one accepts commands"),
    "quiesced": ("site_quiesced", 503, "this site is being switched over"),
    "takeover": ("site_taking_over", 503, "this site is taking over"),
    "unproven": ("site_unproven", 503, "this site does not know yet whether it is the only active one"),
    "storage": ("storage_full", 507, "the disk of this site is nearly full; reads go on"),
}


class Unavailable(EdgeError):
    """There is no outcome: the command may have been executed or not. A retry under the same id is safe."""

    code = "unanswered"
    status = 503
    members: Mapping[str, str] = {}
    """Further members of the problem."""


class Overloaded(Unavailable):
    """Too many commands wait; this one was not sent."""

    code = "overloaded"


class OutcomeUnknown(Unavailable):
    """The command was sent, but its outcome did not arrive in time."""

    code = "outcome_unknown"


class SiteUnavailable(Unavailable):
    """This site accepts no commands now; the command was not sent. `code` is one of `SITE_PROBLEMS`."""

    def __init__(self, control: Control, peer_url: str = "") -> None:
        """`peer_url`: this API at the other site. The peer of a passive site is the active one."""
        state = control.role.role if control.role.role != "active" else control.held
        self.code, self.status, reason = SITE_PROBLEMS[state]
        if state == "passive" and peer_url:
            self.members = {"active_site": peer_url}
            reason = f"{reason}, at {peer_url}"
        super().__init__(reason)


class LogUnavailable(Unavailable):
    """The log did not accept the command in time, or this gateway is not ready."""

    code = "log_unavailable"
