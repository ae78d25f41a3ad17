"""The platform of child processes: a supervisor for each site, and its journal."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from infra.base.errors import NotReady
from infra.base.journal import MemberState, StackState
from infra.base.settings import StackSettings
from infra.stack.embedded import detached
from infra.stack.embedded.broker import EmbeddedBroker
from infra.stack.platform import Platform, SiteProcess
from infra.stack.shop import STORES
from infra.stack.site import Site, sites_of


class EmbeddedPlatform(Platform):
    """The processes of this machine that `daybook up` starts."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings

    def sites(self) -> Mapping[str, Site]:
        return sites_of(self._settings)

    def up(self, site: Site) -> bool:
        return site.journal.supervised()

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        state, supervised = site.journal.read(), site.journal.supervised()
        found = [
            SiteProcess(
                member.name, supervised and member.pid is not None, member.ready, str(member.restarts)
            )
            for member in (state.members if state else ())
        ]
        return {process.name: process for process in found}

    def held(self, site: Site) -> Collection[str]:
        return site.journal.held()

    def start(self, site: Site, *names: str) -> None:
        if not names:
            detached.start(site.settings, site.journal)
        for name in names:
            site.journal.release(name)

    def stop(self, site: Site, *names: str) -> None:
        if not names:
            detached.stop(site.journal)
        for name in names:
            site.journal.hold(name)

    def kill(self, site: Site, name: str) -> None:
        for member in _running(site) if self.up(site) else ():
            if member.name == name:
                _signal_group(member, signal.SIGKILL)

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        supervisor = self._signal_site(site, names, after_each, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._signal_site(site, names, after_each, signal.SIGSTOP)

    def resume_site(self, site: Site) -> None:
        for member in _running(site):
            _signal_group(member, signal.SIGCONT)
        os.kill(_state(site).supervisor, signal.SIGCONT)

    def has_log(self, site: Site) -> bool:
        return (site.settings.home / "broker").is_dir()

    @contextmanager
    def broker_alone(self, site: Site) -> Iterator[str]:
        folder = site.settings.home / "broker"
        broker = EmbeddedBroker(folder, site.settings.port("broker"), site.settings.port("controller"))
        broker.start()
        try:
            yield broker.bootstrap
        finally:
            broker.stop()

    def lose_disks(self, site: Site, kept: Path) -> None:
        for store in STORES:
            if (site.settings.home / store).exists():
                shutil.move(site.settings.home / store, kept / store)

    @staticmethod
    def _signal_site(
        site: Site, names: Sequence[str], after_each: Callable[[], None], number: signal.Signals
    ) -> int:
        """Signal the supervisor's children, while it is stopped; returns its pid.

        It would start again what dies; and at its own death Linux would ask its children to stop in order.
        """
        supervisor, running = _state(site).supervisor, {each.name: each for each in _running(site)}
        os.kill(supervisor, signal.SIGSTOP)
        for member in filter(None, map(running.get, names)):
            _signal_group(member, number)
            after_each()
        return supervisor


def _state(site: Site) -> StackState:
    """What the living supervisor wrote last. Raises NotReady without one."""
    state = site.journal.read()
    if state is None or not site.journal.supervised():
        raise NotReady(f"{site.name} does not run")
    return state


def _running(site: Site) -> list[MemberState]:
    return [member for member in _state(site).members if member.pid is not None]


def _signal_group(member: MemberState, number: signal.Signals) -> None:
    assert member.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(member.pid, number)
