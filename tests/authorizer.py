"""What the authorizer of a site's brokers decided, and where each right of the catalogue is used.

With DAYBOOK_AUTHORIZER_LOG brokers write what they allow, with the rule that allows it, and what they deny.
`rights_in_use.txt` of the tests of security is reviewed by hand: it names for each right the tests that use it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from threading import Thread

from infra.base.settings import ROOT
from infra.log.rights import ADMIN, Right

IN_USE = ROOT / "tests/integration/security/rights_in_use.txt"
_DECISION = re.compile(
    r"Principal = User:(?P<who>\S+) is (?P<how>Allowed|Denied) operation = (?P<operation>\w+) from host = \S+ "
    r"on resource = (?P<resource>\S+) for request = (?P<request>\w+) .*based on rule (?P<rule>.*)"
)
_RULE = re.compile(
    r"resourceType=(?P<kind>\w+), resourceName=(?P<name>[^,]*), patternType=(?P<pattern>\w+), .*"
    r"operation=(?P<operation>\w+)"
)


class Decisions:
    """What brokers decided so far. They write to a pipe, because it would fill a disk within hours."""

    def __init__(self, pipe: Path) -> None:
        self.used: set[Right] = set()
        self.denied: Counter[str] = Counter()
        """By principal, operation, resource and request."""
        self.environment = {"DAYBOOK_AUTHORIZER_LOG": str(pipe)}
        os.mkfifo(pipe, 0o600)
        # Open for writing too: it does not end with a broker, and no broker waits for a reader.
        self._file = os.fdopen(os.open(pipe, os.O_RDWR), errors="replace")
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._file:
            self.note(line)

    def note(self, line: str) -> None:
        """A right is used by the operation that it names: whoever may read may also describe, but need not have the
        right to read for that."""
        if (decision := _DECISION.search(line)) is None:
            return
        who, operation = decision["who"], decision["operation"]
        if decision["how"] == "Denied":
            self.denied[f"{who} {operation} {decision['resource']} {decision['request']}"] += 1
        elif (rule := _RULE.search(decision["rule"])) and rule["operation"] == operation:
            name = rule["name"] + ("*" if rule["pattern"] == "PREFIXED" else "")
            self.used.add(Right(who, rule["kind"].lower(), name, operation.lower()))

    def denied_to(self, *others: str) -> list[str]:
        """What was denied to anybody but these and super users."""
        return sorted(what for what in [*self.denied] if what.split()[0] not in (ADMIN, *others))


def in_use(tests: str = "") -> list[Right]:
    """The rights that the tests of a kind use; without one, those of all places."""
    rows = [line.split() for line in IN_USE.read_text().splitlines() if line and not line.startswith("#")]
    return [Right(*row[1:]) for row in rows if tests in ("", row[0])]


def unused(tests: str, used: set[Right]) -> list[Right]:
    """What the tests of a kind should have used, and did not."""
    return sorted({*in_use(tests)} - used)
