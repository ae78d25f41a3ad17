"""`docker compose` for this checkout's shop: the settings that its files read, and what runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from infra.base.errors import DaybookError
from infra.base.settings import AWAY_PORTS, COMPOSE_SUFFIX, ROOT, StackSettings
from infra.base.waiting import wait_until

# The profile of the second site, and the file that keeps it on.
SITES, TWO_SITES = "sites", "two-sites"
NO_DOCKER = "there is no docker on the path: install Docker with its compose plugin"
START_SECONDS, PAUSE_SECONDS = 300.0, 0.5
MAKE_SECRETS = ROOT / "infra" / "compose" / "make-secrets"


class EngineFailed(DaybookError):
    """Docker did not do it; the text says what to do."""


@dataclass(frozen=True)
class Container:
    """One container, as the engine sees it: `state` running, exited…; `health` empty where nobody asks.
    `service` is its name in the compose files, `name` the engine's; it is in `networks`, unless cut off."""

    name: str
    service: str
    state: str
    health: str
    exit_code: int
    addresses: tuple[str, ...]
    networks: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether it runs and is healthy, or was a step and is done."""
        if self.state == "exited":
            return self.exit_code == 0
        return self.state == "running" and self.health in ("", "healthy")


def compose_home(home: Path) -> Path:
    """The folder of the shop in containers: beside the embedded one's, so that neither is cleaned with the
    other."""
    return home.with_name(home.name + COMPOSE_SUFFIX)


def keep_two_sites(settings: StackSettings) -> None:
    """From now on every start is of both sites."""
    (settings.home / TWO_SITES).touch()


def compose_environment(settings: StackSettings) -> Mapping[str, str]:
    """What the compose files read. Raises EngineFailed for a base of ports that they cannot express."""
    if settings.port_base % 100:
        raise EngineFailed(f"DAYBOOK_PORT_BASE is {settings.port_base}: containers need a multiple of 100")
    profiles = [name for name in os.environ.get("COMPOSE_PROFILES", "").split(",") if name]
    if (settings.home / TWO_SITES).exists() and SITES not in profiles:
        profiles.append(SITES)
    return {
        **os.environ,
        "COMPOSE_PROFILES": ",".join(profiles),
        "DAYBOOK_HOME": str(settings.named_home),
        "DAYBOOK_PORTS": str(settings.port_base // 100),
        "DAYBOOK_AWAY_PORTS": str((settings.port_base + AWAY_PORTS) // 100),
    }


def compose(settings: StackSettings, *arguments: str) -> None:
    """Run `docker compose`, whose output is the user's. Raises EngineFailed."""
    _run(["docker", "compose", *arguments], settings)


def quietly(settings: StackSettings, *command: str) -> str:
    """What a command says on standard output. Raises EngineFailed with what it says on standard error."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=compose_environment(settings),
            capture_output=True,
            text=True,
            check=False,
            # Ctrl-C in a terminal goes to all of its processes; this one has something to finish
            start_new_session=True,
        )
    except FileNotFoundError:
        raise EngineFailed(NO_DOCKER) from None
    if done.returncode:
        raise EngineFailed(f"`{' '.join(command)}`: {done.stderr.strip()[-2000:]}")
    return done.stdout


def make_secrets(settings: StackSettings) -> None:
    """The files that containers take their secrets from, where they are absent. Raises EngineFailed."""
    _run([str(MAKE_SECRETS)], settings)


def containers(settings: StackSettings) -> list[Container]:
    """All of the shop's, of every profile, ended ones too. Raises EngineFailed."""
    asked = ["docker", "compose", "--profile", "*", "ps", "--all", "--format", "json"]
    said = _run(asked, settings, capture=True)
    return sorted(
        (_container(msgspec.json.decode(line)) for line in said.splitlines()), key=lambda one: one.service
    )


def active_services(settings: StackSettings) -> set[str]:
    """The services of the profiles that are on. Raises EngineFailed."""
    return set(quietly(settings, "docker", "compose", "config", "--services").split())


def await_fine(settings: StackSettings, services: Collection[str]) -> None:
    """Wait until the containers of `services` run and are healthy; steps must have ended well.

    `docker compose up --wait` gives up at the first container that ends, but a worker may end as it was told to, and
    the engine starts it again. Raises EngineFailed.
    """

    def unwell() -> list[Container]:
        found = [one for one in containers(settings) if one.service in services and not one.fine]
        if ended := [one for one in found if one.state == "exited"]:
            raise _not_fine(ended)
        return found

    wait_until(
        unwell,
        "all containers are healthy",
        START_SECONDS,
        enough=lambda found: not found,
        every=PAUSE_SECONDS,
        error=lambda late: _not_fine(late.last),
    )


def _not_fine(ill: Sequence[Container]) -> EngineFailed:
    named = ", ".join(f"{one.service} is {one.health or one.state}" for one in ill)
    return EngineFailed(f"{named}: `./daybook --stack compose logs {ill[0].service}` says more")


def _container(row: Mapping[str, object]) -> Container:
    published = row["Publishers"]
    ports = [one for one in published if one["PublishedPort"]] if isinstance(published, list) else []
    return Container(
        str(row["Name"]),
        str(row["Service"]),
        str(row["State"]),
        str(row["Health"]),
        int(str(row["ExitCode"])),
        tuple(sorted(f"{one['URL']}:{one['PublishedPort']}" for one in ports)),
        tuple(filter(None, str(row["Networks"]).split(","))),
    )


def _run(command: list[str], settings: StackSettings, *, capture: bool = False) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=compose_environment(settings),
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise EngineFailed(NO_DOCKER) from None
    if done.returncode:
        raise EngineFailed(
            f"`{' '.join(command[:3])}` ended with {done.returncode}; what it said stands above"
        )
    return done.stdout or ""
