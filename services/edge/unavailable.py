"""Why a command has no outcome. Each becomes a 503 or 507 with its code; the repeat is always safe."""

from __future__ import annotations

from collections.abc import Mapping

from services.kernel.log.control import Control

NOT_TAKING = {
    "passive": ("site_passive", 503, "this site is passive: the other one takes commands"),
    "quiesced": ("site_quiesced", 503, "this site is being switched over"),
    "takeover": ("site_taking_over", 503, "this site is taking over"),
    "unproven": ("site_unproven", 503, "this site does not know yet whether it is the only active one"),
    "storage": ("storage_full", 507, "the disk of this site is nearly full; reads go on"),
}


class Unanswered(Exception):
    """No outcome: the command may have been executed or not. It is safe to repeat it under the same id."""

    code = "unanswered"
    status = 503
    members: Mapping[str, str] = {}
    """Further members of the problem."""


class Overloaded(Unanswered):
    """Too many commands are waiting; this one was not sent."""

    code = "overloaded"


class OutcomeUnknown(Unanswered):
    """The command was sent and its outcome did not come in time."""

    code = "outcome_unknown"


class NotTaking(Unanswered):
    """This site takes no commands now; it was not sent. `code` says why, see `NOT_TAKING`."""

    def __init__(self, control: Control, peer_url: str = "") -> None:
        """`peer_url` is where the other site takes such commands: a passive site's peer is the active one."""
        why = control.role.role if control.role.role != "active" else control.held
        self.code, self.status, reason = NOT_TAKING[why]
        if why == "passive" and peer_url:
            self.members = {"active_site": peer_url}
            reason = f"{reason}, at {peer_url}"
        super().__init__(reason)


class LogUnavailable(Unanswered):
    """The log did not take the command in time, or this gateway is not ready."""

    code = "log_unavailable"
