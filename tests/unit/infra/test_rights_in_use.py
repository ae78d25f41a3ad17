"""Each right of the catalogue has tests that use it, or a reason why none does; the log of decisions is understood."""

from __future__ import annotations

from pathlib import Path

from infra.base.waiting import wait_until
from infra.log.rights import Right, rights
from tests.authorizer import IN_USE, Decisions, in_use

PLACES = {"e2e", "sites", "drills", "containers", "spark", "both", "takeover", "crash"}
LINE = (
    "[2026-11-24 13:00:00,123] DEBUG Principal = User:{who} is {how} operation = {operation} from host = 127.0.0.1 on "
    "resource = {resource} for request = Fetch with resourceRefCount = 1 based on rule {rule} (kafka.authorizer)\n"
)
RULE = (
    "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName={name}, patternType={pattern}, "
    "principal=User:query, host=*, operation=READ, permissionType=ALLOW])"
)


def line(
    how: str, operation: str, rule: str, who: str = "query", resource: str = "Topic:LITERAL:order.events"
) -> str:
    return LINE.format(who=who, how=how, operation=operation, resource=resource, rule=rule)


def test_the_table_names_every_right_once() -> None:
    named = in_use()
    assert sorted(named) == sorted(rights())
    assert len(named) == len({*named})
    lines = IN_USE.read_text().splitlines()
    assert {row.split()[0] for row in lines if row and not row.startswith("#")} <= PLACES


def test_a_right_is_used_by_the_operation_that_it_names(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path / "decisions")
    literal = RULE.format(name="order.events", pattern="LITERAL")
    written = [
        line("Allowed", "READ", literal),
        line("Allowed", "DESCRIBE", RULE.format(name="inventory.events", pattern="LITERAL")),
        line("Denied", "WRITE", "DefaultDeny"),
        line("Denied", "WRITE", "DefaultDeny", who="nobody"),
        line("Allowed", "WRITE", "SuperUser", who="admin"),
        "a line of another logger\n",
    ]
    Path(decisions.environment["DAYBOOK_AUTHORIZER_LOG"]).write_text("".join(written))
    # another broker, or the same after a restart
    Path(decisions.environment["DAYBOOK_AUTHORIZER_LOG"]).write_text(
        line("Allowed", "READ", RULE.format(name="site.", pattern="PREFIXED"))
    )
    wait_until(lambda: len(decisions.used) == 2, "both are read", 10)
    assert decisions.used == {
        Right("query", "topic", "order.events", "read"),
        Right("query", "topic", "site.*", "read"),
    }
    assert decisions.denied_to("nobody") == ["query WRITE Topic:LITERAL:order.events Fetch"]
