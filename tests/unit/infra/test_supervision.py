"""The supervisor's arithmetic, the journal, the ports and the lock file: no process is started here."""

import os
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from infra.base.errors import JarsNotResolved, OtherCommand, PortTaken
from infra.base.files import kept_secret
from infra.base.journal import MemberState, Phase, StackJournal, StackState
from infra.base.ports import HOST, listening, require_free
from infra.base.settings import OFFSETS, StackSettings
from infra.stack.embedded.child import Program
from infra.stack.embedded.java import LOCK, Jar, read_lock, verify
from infra.stack.embedded.stack import Member, members
from infra.stack.embedded.supervisor import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, Watched, backoff
from infra.stack.shop import NAMES
from tests.ports import free_ports


def test_each_early_death_doubles_the_wait_up_to_a_bound() -> None:
    assert [backoff(deaths) for deaths in (0, 1, 2, 3, 4)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert backoff(50) == LONGEST_BACKOFF_SECONDS


def test_a_taken_port_is_one_line_that_names_owner_and_setting() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        assert listening(port)
        with pytest.raises(PortTaken) as taken:
            require_free(port, "order-api", "DAYBOOK_PORT_BASE")
    assert str(taken.value) == (
        f"port {port} of order-api is taken: stop the process that uses it, or set DAYBOOK_PORT_BASE"
    )
    require_free(port, "order-api", "DAYBOOK_PORT_BASE")


def test_free_ports_are_distinct_and_silent() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(listening(port) for port in ports)
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if outgoing.exists():  # a connection that begins meanwhile must not get one of them
        assert max(ports) < int(outgoing.read_text().split()[0])


def test_two_checkouts_with_different_bases_share_no_port(tmp_path: Path) -> None:
    def ports(base: int) -> set[int]:
        rows = members(StackSettings(home=tmp_path, port_base=base))
        return {port for row in rows for member in row for port in member.ports}

    # the broker has three, each API and the registry two
    assert len(ports(27400)) == len(NAMES) + 2 + 4
    assert not ports(27400) & ports(27500)
    assert len({*OFFSETS.values()}) == len(OFFSETS), "two processes on one port"
    assert all(0 < offset < 100 for offset in OFFSETS.values()), "two stacks on one port"


def test_a_base_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        StackSettings(home=tmp_path, port_base=65_500)


def test_only_keeps_the_order_of_starting(tmp_path: Path) -> None:
    rows = members(StackSettings(home=tmp_path), ["query-api", "broker"])
    assert [[member.name for member in row] for row in rows] == [["broker"], ["query-api"]]


def test_further_processes_stand_beside_the_first_of_their_kind(tmp_path: Path) -> None:
    counts = {"order-worker": 3, "order-api": 2, "registry": 1}
    rows = members(StackSettings(home=tmp_path), ["order-worker", "order-api"], counts)
    names = [[member.name for member in row] for row in rows]
    assert names == [["order-worker", "order-worker-1", "order-worker-2"], ["order-api", "order-api-1"]]
    assert [member.ports for member in rows[1]] == [(27401, 27428), (27451, 27429)]
    program = rows[0][2].prepare()
    assert (program.environment["DAYBOOK_SLOT"], program.environment["DAYBOOK_HEALTH_PORT"]) == ("2", "27422")


def test_the_journal_gives_back_what_was_written(tmp_path: Path) -> None:
    journal = StackJournal(tmp_path / "home")
    assert journal.read() is None
    assert journal.events() == []
    state = StackState(Phase.RUNNING, 42, 27400, (MemberState("broker", 43, True, 2),))
    journal.write(state)
    journal.record("broker", "died", "exit code -9")
    assert journal.read() == state
    assert [(e["process"], e["event"], e["detail"]) for e in journal.events()] == [
        ("broker", "died", "exit code -9")
    ]


@pytest.mark.parametrize("damaged", [b"", b'{"phase": "runn', b"\0" * 64, b"{}", b"\xff"])
def test_a_state_that_a_power_cut_left_damaged_is_none(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "state.json").write_bytes(damaged)
    journal = StackJournal(tmp_path)
    assert journal.read() is None
    state = StackState(Phase.STARTING, 42, 27400)
    journal.write(state)
    assert journal.read() == state


def test_half_an_event_is_passed_over(tmp_path: Path) -> None:
    journal = StackJournal(tmp_path)
    journal.record("broker", "started")
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"at": "2026\xff\0\0\n')
    journal.record("broker", "ready")
    assert [event["event"] for event in journal.events()] == ["started", "ready"]


def test_a_stack_has_one_supervisor(tmp_path: Path) -> None:
    first, second = StackJournal(tmp_path), StackJournal(tmp_path)
    assert not first.supervised()
    with first.sole_supervisor() as alone:
        assert alone
        assert second.supervised()
        with second.sole_supervisor() as also_alone:
            assert not also_alone
    assert not second.supervised()


def test_one_command_changes_the_shop_and_says_so_to_others(tmp_path: Path) -> None:
    first, second = StackJournal(tmp_path), StackJournal(tmp_path)
    with first.sole_change("site rebuild home"):
        busy = rf"`daybook site rebuild home` \(pid {os.getpid()}\) has been running for \d+ s"
        with pytest.raises(OtherCommand, match=busy), second.sole_change("failback"):
            raise AssertionError("two at once")
    with pytest.raises(ZeroDivisionError), second.sole_change("failback"):
        raise ZeroDivisionError  # a command that fails gives the lock back
    with first.sole_change("failover"):
        pass


def test_a_copied_secret_is_the_same(tmp_path: Path) -> None:
    assert kept_secret(tmp_path / "key", "a copy") == kept_secret(tmp_path / "key", "another") == "a copy"


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path / "folder" / "key")
    assert len(secret) >= 16
    assert kept_secret(tmp_path / "folder" / "key") == secret
    assert (tmp_path / "folder" / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


def test_the_lock_names_every_jar_once_with_a_sha256() -> None:
    sets = read_lock(LOCK.read_text())
    names = {name for name in sets if not name.startswith("connect-")}
    assert names == {"kafka", "kafka-next", "spark", "monitoring"}
    for jars in sets.values():
        assert len({(jar.organisation, jar.module) for jar in jars}) == len(jars)
        assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert Jar("org.apache.kafka", "kafka_2.13", "4.3.1", sets["kafka"][0].sha256).file_name in {
        jar.file_name for jar in sets["kafka"]
    }


def test_a_jar_with_other_bytes_or_none_is_refused(tmp_path: Path) -> None:
    jar = Jar("org.example", "tool", "1.0", "00" * 32)
    with pytest.raises(JarsNotResolved, match=r"org\.example:tool:1\.0 could not be fetched"):
        verify(tmp_path, [jar])
    (tmp_path / "tool-1.0.jar").write_bytes(b"other")
    with pytest.raises(JarsNotResolved, match=r"tool-1\.0\.jar has sha256 .* the lock says 0000"):
        verify(tmp_path, [jar])


def watched(name: str) -> Watched:
    return Watched(Member(name, (), lambda: Program(name, ()), lambda: True, 1.0))


def test_a_death_in_the_brokers_absence_waits_for_nothing_and_is_not_counted() -> None:
    worker = watched("order-worker")
    assert [worker.died(lived, broker_was_away=True) for lived in (30.0, 2.0, 1.1)] == [0.0, 0.0, 0.0]
    assert worker.died(5.0, broker_was_away=False) == FIRST_BACKOFF_SECONDS
    assert worker.died(5.0, broker_was_away=True) == 0.0
    assert worker.died(5.0, broker_was_away=False) == 2 * FIRST_BACKOFF_SECONDS
    assert [worker.died(lived, broker_was_away=False) for lived in (61.0, 5.0)] == [
        0.0,
        FIRST_BACKOFF_SECONDS,
    ]


def test_what_was_lived_before_a_death_that_is_not_counted_counts() -> None:
    worker = watched("order-worker")
    assert worker.died(20.0, broker_was_away=False) == FIRST_BACKOFF_SECONDS
    assert worker.died(45.0, broker_was_away=True) == 0.0
    assert worker.died(20.0, broker_was_away=False) == 0.0
    assert worker.died(20.0, broker_was_away=False) == FIRST_BACKOFF_SECONDS


@pytest.mark.parametrize("name", ["broker", "postgres", "mirror"])
def test_who_does_not_wait_for_the_broker_backs_off_as_ever(name: str) -> None:
    assert watched(name).died(5.0, broker_was_away=True) == FIRST_BACKOFF_SECONDS


def test_who_dies_at_once_did_not_die_of_the_brokers_absence() -> None:
    worker = watched("order-worker")
    assert [worker.died(0.5, broker_was_away=True) for _ in range(3)] == [0.5, 1.0, 2.0]
