"""The Docker engine: `docker compose` for this checkout's shop, its containers, and faults that are always repaired."""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from dotenv import dotenv_values

from infra.base.errors import DaybookError
from infra.base.settings import AWAY_PORTS, COMPOSE_SUFFIX, OFFSETS, ROOT, StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.stack.compose.further import further_file
from infra.stack.shop import ROUTED

# The project of docker-compose.yml, and what compose writes on each of its containers.
PROJECT, LABEL = "daybook", "com.docker.compose"
# The profile of the second site, and the file that keeps it on.
PROFILES, SITES, TWO_SITES = "COMPOSE_PROFILES", "sites", "two-sites"
USERS = "users"  # makes a site's first step do that alone
# The nodes of a site that is a cluster; those of the second site have its name before theirs.
CLUSTER_NODES = ("broker-1", "broker-2", "broker-3", "controller", "controller-2", "controller-3")
# The variables and profiles of such a shop: with one site those of the first file.
CLUSTER_FILES = ("infra/compose/cluster.env", "infra/compose/away-cluster.env")
# The other site's broker for the processes of home, unless a file names several.
AWAY_LINK, HOME_PEER = "DAYBOOK_AWAY_LINK", "away-link:9095"
# Of the compose files: Kafka is in clear text, or tokens are not verified, if one of these is empty.
EMPTY_IF_INSECURE = ("DAYBOOK_KAFKA_SCHEME", "DAYBOOK_TOKEN_KEYS")
NO_DOCKER = "there is no docker on the path: install Docker with its compose plugin"
START_SECONDS, PAUSE_SECONDS = 300.0, 0.5
CALL_SECONDS, PROBE_SECONDS, POLL_SECONDS = 120.0, 60.0, 0.05
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EngineFailed(DaybookError):
    """A command of Docker failed; the text says what to do."""


@dataclass(frozen=True)
class Container:
    """One container, as the engine sees it: `state` running, exited, …; `health` is empty without a health check.
    `service` is its name in the compose files, `name` the engine's; `started` is the time of its last start."""

    name: str
    service: str
    state: str
    health: str
    exit_code: int
    addresses: tuple[str, ...]
    started: str = ""

    @property
    def fine(self) -> bool:
        """Whether it runs and is healthy, or was a step and ended well."""
        if self.state == "exited":
            return self.exit_code == 0
        return self.state == "running" and self.health in ("", "healthy")


def compose_home(home: Path) -> Path:
    """The folder of the shop in containers, beside that of the embedded one: `clean` removes only one of them."""
    return home.with_name(home.name + COMPOSE_SUFFIX)


def keep_two_sites(settings: StackSettings, sites: int = 2) -> None:
    """Start both sites from now on, if two are asked for or the profile of the second is active."""
    if sites == 2 or SITES in active_profiles(settings):
        (settings.home / TWO_SITES).touch()


def compose_environment(settings: StackSettings) -> Mapping[str, str]:
    """The variables of the compose files. Raises EngineFailed for a port base that they cannot express."""
    if settings.port_base % 100:
        raise EngineFailed(f"DAYBOOK_PORT_BASE is {settings.port_base}: containers need a multiple of 100")
    profiles = active_profiles(settings)
    files = {"DAYBOOK_QUERY_PORT": f"{OFFSETS[ROUTED['query-api']]:02}"} if SITES in profiles else {}
    if (further := further_file(settings.home)).exists():
        first = os.environ.get("COMPOSE_FILE", "docker-compose.yml")
        files["COMPOSE_FILE"] = f"{first}:{further.absolute()}"
    of_cluster = _of_cluster(settings)
    return {
        **{name: value for name, value in os.environ.items() if value or name not in EMPTY_IF_INSECURE},
        **of_cluster,
        **({} if settings.secured else dict.fromkeys(EMPTY_IF_INSECURE, "")),
        **files,
        PROFILES: ",".join(profiles),
        "COMPOSE_PROJECT_NAME": os.environ.get("COMPOSE_PROJECT_NAME") or PROJECT,
        "DAYBOOK_HOME": str(settings.named_home),
        "DAYBOOK_HOME_PEER": of_cluster.get(AWAY_LINK, HOME_PEER) if SITES in profiles else "",
        "DAYBOOK_PORTS": str(settings.port_base // 100),
        "DAYBOOK_AWAY_PORTS": str((settings.port_base + AWAY_PORTS) // 100),
    }


def active_profiles(settings: StackSettings) -> list[str]:
    """Those of the environment, or else of its last file that has any, and the second site's where it is kept on."""
    files = [dotenv_values(ROOT / file) for file in os.environ.get("COMPOSE_ENV_FILES", "").split(",")]
    named = [own for own in (*(file.get(PROFILES) for file in files), os.environ.get(PROFILES)) if own]
    kept = SITES if (settings.home / TWO_SITES).exists() else ""
    return sorted({*",".join([*named[-1:], kept, _of_cluster(settings).get(PROFILES, "")]).split(",")} - {""})


def _of_cluster(settings: StackSettings) -> dict[str, str]:
    if settings.brokers == 1:
        return {}
    files = CLUSTER_FILES if (settings.home / TWO_SITES).exists() else CLUSTER_FILES[:1]
    return {name: value or "" for file in files for name, value in dotenv_values(ROOT / file).items()}


def compose(settings: StackSettings, *arguments: str) -> None:
    """Run `docker compose`; the user sees its output. Raises EngineFailed."""
    command = ("docker", "compose", *arguments)
    done = _call(command, compose_environment(settings), shown=True)
    if done.returncode:
        raise EngineFailed(f"`{' '.join(command[:3])}` ended with {done.returncode}; its output is above")


def quietly(settings: StackSettings, *command: str) -> str:
    """The standard output of a command. Raises EngineFailed with its standard error."""
    return _output(_call(command, compose_environment(settings)))


def containers(settings: StackSettings) -> list[Container]:
    """All containers of the shop, of every profile, ended ones too. Raises EngineFailed.

    The engine responds in a tenth of the time that `docker compose ps` takes.
    """
    project = f"project={compose_environment(settings)['COMPOSE_PROJECT_NAME']}"
    filters = [f"--filter=label={LABEL}.{value}" for value in (project, "oneoff=False")]
    names = _docker("ps", "--all", "--quiet", *filters).split()
    if not names:
        return []
    done = _call(["docker", "inspect", "--type", "container", *names], seconds=CALL_SECONDS)
    # one may have been removed meanwhile
    output = done.stdout if "no such container" in done.stderr.lower() else _output(done)
    every = map(_container, msgspec.json.decode(output, type=list[dict[str, Any]]))
    return sorted(every, key=lambda container: container.service)


def active_services(settings: StackSettings) -> set[str]:
    """The services of the active profiles. Raises EngineFailed."""
    return set(quietly(settings, "docker", "compose", "config", "--services").split())


def await_fine(settings: StackSettings, services: Collection[str]) -> None:
    """Wait until the containers of `services` run and are healthy; steps must have ended well.

    `docker compose up --wait` gives up at the first container that ends, but a worker may end on purpose, and the
    engine starts it again. Raises EngineFailed.
    """

    def unhealthy_now() -> list[Container]:
        unhealthy = [own for own in containers(settings) if own.service in services and not own.fine]
        if ended := [container for container in unhealthy if container.state == "exited"]:
            raise not_fine(ended)
        return unhealthy

    wait_until(
        unhealthy_now,
        "all containers are healthy",
        START_SECONDS,
        enough=lambda unhealthy: not unhealthy,
        every=PAUSE_SECONDS,
        error=lambda late: not_fine(late.last),
    )


def not_fine(unhealthy: Sequence[Container]) -> EngineFailed:
    """Which containers are not fine, and why, as far as they say it."""
    named = ", ".join(f"{container.service} {_state(container)}" for container in unhealthy)
    return EngineFailed(f"{named}: `./daybook --stack compose logs {unhealthy[0].service}` says more")


def _state(container: Container) -> str:
    """Its health or state, and what its health check printed last, or it itself before it ended."""
    if container.state == "exited":
        since = ("--since", container.started, "--tail", "1", container.name)
        printed = _call(("docker", "logs", *since), seconds=CALL_SECONDS)
        state, reason = f"ended with {container.exit_code}", (printed.stdout + printed.stderr).strip()
    else:
        checks = (_inspect(container.name)["State"].get("Health") or {}).get("Log") or [{}]
        state, reason = f"is {container.health or container.state}", str(checks[-1].get("Output", "")).strip()
    return state + (f" ({reason})" if reason else "")


def _container(row: Mapping[str, Any]) -> Container:
    state, ports = row["State"], row["NetworkSettings"]["Ports"].values()
    return Container(
        row["Name"].removeprefix("/"),
        row["Config"]["Labels"][f"{LABEL}.service"],
        state["Status"],
        (state.get("Health") or {}).get("Status", ""),
        state["ExitCode"],
        tuple(sorted(f"{port['HostIp']}:{port['HostPort']}" for own in ports for port in own or ())),
        state["StartedAt"],
    )


def _call(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    shown: bool = False,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Its output is captured, unless it is `shown` to the user."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.PIPE,
            text=True,
            timeout=seconds,
            # Ctrl-C in a terminal goes to all of its processes; one whose output is captured must finish
            start_new_session=not shown,
        )
    except FileNotFoundError:
        raise EngineFailed(NO_DOCKER) from None
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"`{' '.join(command)}` did not end in {seconds:.0f} s") from None


def _output(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        raise EngineFailed(f"`{' '.join(done.args)}`: {done.stderr.strip()[-2000:]}")
    return done.stdout


class Failure(StrEnum):
    """`KILL`: without warning, and started again (the engine does not restart what `docker kill` has ended).
    `PAUSE`: alive, connected and silent. `CUT`: alive and disconnected. `RESTART`: stopped in order and started."""

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    RESTART = "restart"


@dataclass(frozen=True)
class Broken:
    """The start and the end of a fault, seconds since 1970."""

    began: float
    mended: float


def inject(name: str, failure: Failure, seconds: float) -> Broken:
    """Inject a fault into the container `name` for `seconds`, and repair it, whatever happens meanwhile.

    Only in the main thread: Ctrl-C and SIGTERM end the wait early, and are raised as KeyboardInterrupt after the
    repair. Raises EngineFailed.
    """
    networks = _inspect(name)["NetworkSettings"]["Networks"]
    with signals_deferred() as signals:
        began = time.time()
        try:
            _break(name, failure, networks)
            with suppress(TooLate):
                wait_until(lambda: signals, "a request to stop", seconds, every=POLL_SECONDS)
        finally:
            _mend(name, networks)
        mended = time.time()
    return Broken(began, mended)


def is_healthy(name: str) -> bool:
    """Whether the container runs and its health check passes now: the engine's own result may be outdated."""
    state = _inspect(name)
    if not state["State"]["Running"] or state["State"]["Paused"]:
        return False
    kind, *check = (state["Config"].get("Healthcheck") or {}).get("Test") or ["NONE"]
    if kind == "NONE":
        return True
    command = ["sh", "-c", *check] if kind == "CMD-SHELL" else check
    try:
        return _call(["docker", "exec", name, *command], seconds=PROBE_SECONDS).returncode == 0
    except EngineFailed:
        return False


def _break(name: str, failure: Failure, networks: Mapping[str, Any]) -> None:
    match failure:
        case Failure.KILL:
            _docker("kill", "--signal", "KILL", name)
        case Failure.PAUSE:
            _docker("pause", name)
        case Failure.CUT:
            for network in networks:
                _docker("network", "disconnect", network, name)
        case Failure.RESTART:
            _docker("stop", name)


def _mend(name: str, networks: Mapping[str, Any]) -> None:
    """Repair the container, whatever was done to it: according to its state."""
    state = _inspect(name)
    if state["State"]["Paused"]:
        _docker("unpause", name)
    for network in networks.keys() - state["NetworkSettings"]["Networks"].keys():
        aliases = networks[network]["Aliases"] or ()
        _docker("network", "connect", *(f"--alias={alias}" for alias in aliases), network, name)
    if not state["State"]["Running"]:
        _docker("start", name)


@contextmanager
def signals_deferred() -> Iterator[list[int]]:
    """Defers signals that end this process to the end of the block; the list has those that arrived."""
    received: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, remember) for number in END_SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def _inspect(name: str) -> Mapping[str, Any]:
    return msgspec.json.decode(_docker("inspect", "--type", "container", name), type=list[dict[str, Any]])[0]


def _docker(*arguments: str) -> str:
    return _output(_call(["docker", *arguments], seconds=CALL_SECONDS))
