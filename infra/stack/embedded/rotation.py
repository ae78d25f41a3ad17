"""New passwords and brokers' certificates for Kafka's users, while the shop runs: `daybook rotate`.

Whoever is connected stays connected. A process reads its password when it starts, so each is restarted in turn; an
API that ends completes its requests first. Brokers read their new certificate at once. The authority stays. Whatever
step an interruption hits, the same command, or the next start of the sites, sets what the files contain.
"""

from collections.abc import Callable

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from infra.base.errors import NotReady
from infra.base.journal import MemberState, StackJournal
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.identity.authority import Authority
from infra.log.rights import ADMIN, principals
from infra.stack.embedded.router import router_journal
from infra.stack.security import apply_security, starting_address
from infra.stack.shop import SILENT, kind_of
from infra.stack.site import home_settings, sites_of
from services.kernel.log import clients

READY_SECONDS = 180.0
SECONDS = 30.0
# A dynamic setting of a broker that changes nothing: each one lets it read the files of certificates again (KIP-226).
_HARMLESS = [ConfigEntry("log.cleaner.threads", "1", incremental_operation=AlterConfigOpType.DELETE)]


def rotate(settings: StackSettings, show: Callable[[str], None]) -> list[str]:
    """Give every user a new password and the brokers a new certificate. Returns the processes that were restarted.

    Raises NotReady, OtherCommand, KafkaException or OSError; a second call completes what this one began.
    """
    home = home_settings(settings)
    sites = sites_of(home)
    if down := [name for name, site in sites.items() if not site.journal.supervised()]:
        raise NotReady(
            f"{' and '.join(down)} must run to learn the passwords: `./daybook up` starts every site"
        )
    if not home.secured:
        raise NotReady("Kafka has no users here: start without --insecure")
    with sites["home"].journal.sole_change("rotate"):
        show("new passwords and certificates")
        own = Authority(home.kafka_identities)
        files = own.brokers() | own.passwords([ADMIN, *principals()])
        for site in sites.values():
            Authority(site.settings.kafka_identities).replace(files)
        for site in sites.values():
            apply_security(site.settings)
            _read_certificates(starting_address(site.settings))
        restarted = []
        for journal in [*(site.journal for site in sites.values()), router_journal(home)]:
            for name in _users(journal):
                show(f"restarting {name}")
                _restart(journal, name)
                restarted.append(name)
        return restarted


def _read_certificates(address: str) -> None:
    """Let every broker read its files of certificates again."""
    admin = clients.admin(address)
    for broker in admin.list_topics(timeout=SECONDS).brokers:
        request = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=_HARMLESS)
        for done in admin.incremental_alter_configs([request], request_timeout=SECONDS).values():
            done.result(SECONDS)


def _users(journal: StackJournal) -> list[str]:
    """The running processes that may have a user in Kafka."""
    state = journal.read() if journal.supervised() else None
    return [member.name for member in state.members if member.pid and _has_user(member)] if state else []


def _has_user(member: MemberState) -> bool:
    return kind_of(member.name) == "mirror" or kind_of(member.name) not in (*SILENT, "registry")


def _restart(journal: StackJournal, name: str) -> None:
    """End a process in order, and wait until its successor is ready."""

    def member() -> MemberState | None:
        state = journal.read()
        return next((member for member in state.members if member.name == name), None) if state else None

    try:
        journal.keep_down(name)
        wait_until(lambda: (own := member()) is None or own.pid is None, f"{name} has ended", READY_SECONDS)
    finally:
        journal.release(name)
    wait_until(
        lambda: (own := member()) is not None and own.pid and own.ready,
        f"{name} is ready",
        READY_SECONDS,
        error=lambda late: NotReady(
            f"{name} is not ready after {late.seconds:.0f} s: see `./daybook logs {name}`, then repeat the command"
        ),
    )
