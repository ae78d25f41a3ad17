"""The jars of broker, Spark and others: the exact list of the lock, by PySpark's Ivy, verified, cached.

`python -m infra.stack.embedded.jars [SET …]` fetches them ahead of need.
"""

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from infra.base.errors import JarsNotResolved
from infra.base.settings import ROOT
from infra.stack.embedded.cache import cache_folder, one_at_a_time, replaced_at_once
from infra.stack.embedded.java import find_java, trust_options

LOCK = ROOT / "infra" / "jars.lock"
SETS = ("kafka", "spark")
FETCH_SECONDS = 900


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
    """The folder that holds exactly the jars of the set `name`, fetched and verified on first use.

    Raises JarsNotResolved when one cannot be fetched or differs from its sha256.
    """
    jars = read_lock(LOCK.read_text())[name]
    digest = hashlib.sha256("".join(sorted(jar.sha256 for jar in jars)).encode()).hexdigest()
    folder = cache_folder() / "jars" / f"{name}-{digest[:12]}"
    with one_at_a_time("jars"):
        if not _complete(folder, jars):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with replaced_at_once(folder) as fresh:
                _fetch(name, jars, fresh)
                verify(fresh, jars)
    return folder


def classpath(name: str) -> str:
    """The set as a Java class path."""
    return f"{jars_folder(name)}/*"


def verify(folder: Path, jars: Iterable[Jar]) -> None:
    """Raise JarsNotResolved unless every jar is there with the locked bytes."""
    for jar in jars:
        file = folder / jar.file_name
        if not file.is_file():
            raise JarsNotResolved(f"{jar.organisation}:{jar.module}:{jar.revision} could not be fetched")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != jar.sha256:
            raise JarsNotResolved(f"{jar.file_name} has sha256 {found}, the lock says {jar.sha256}")


def _complete(folder: Path, jars: Iterable[Jar]) -> bool:
    """A folder only ever appears verified, so the names are enough."""
    return all((folder / jar.file_name).is_file() for jar in jars)


def _fetch(name: str, jars: Iterable[Jar], into: Path) -> None:
    java = find_java()
    with tempfile.TemporaryDirectory() as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        ivy_file.write_bytes(_ivy_module(name, jars))
        command = [str(java.executable), *trust_options(java), "-jar", str(_ivy())]
        command += ["-ivy", str(ivy_file), "-cache", str(cache_folder() / "ivy"), "-error"]
        command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as slow:
            raise JarsNotResolved(f"fetching the {name} jars took longer than {FETCH_SECONDS} s") from slow
    if done.returncode:
        raise JarsNotResolved(
            f"fetching the {name} jars failed:\n{(done.stdout + done.stderr).strip()[-2000:]}"
        )


def _ivy_module(name: str, jars: Iterable[Jar]) -> bytes:
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="daybook", module=name)
    configurations = ElementTree.SubElement(module, "configurations")
    ElementTree.SubElement(configurations, "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies", defaultconf="default->master")
    for jar in jars:
        attributes = {"org": jar.organisation, "name": jar.module, "rev": jar.revision, "transitive": "false"}
        ElementTree.SubElement(dependencies, "dependency", attributes)
    return ElementTree.tostring(module)


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise JarsNotResolved("PySpark, whose wheel brings Ivy, is not installed: run `make setup`")
    return found[-1]


if __name__ == "__main__":
    try:
        for wanted in sys.argv[1:] or SETS:
            print(f"{wanted} jars: {jars_folder(wanted)}")
    except JarsNotResolved as failure:
        sys.exit(f"daybook: {failure}")
