"""Makes archives of the classes that Kafka and Spark load: a JVM that maps one starts with half of the processor time.

A JVM writes an archive when it ends, of the classes that it has loaded until then. So each program runs once, on its
own, without the shop: `python -m infra.stack.embedded.class_archives kafka spark`. Without archives everything runs as
well, and starts slower.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from infra.base.errors import DaybookError, NotReady
from infra.base.ports import HOST, listening
from infra.base.settings import ROOT
from infra.identity.authority import Authority
from infra.log.rights import ADMIN
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.java import (
    ClassArchive,
    class_archive,
    find_java,
    jars_folder,
    one_at_a_time,
    replaced_at_once,
    spark_archive,
    spark_environment,
)
from infra.stack.embedded.kafka import MIRROR, NODE, NODE_SECONDS, lone_broker, prepare_mirror
from infra.stack.mirror_settings import MirrorPlace

STORE_SECONDS = 300.0
QUICK = ("-XX:TieredStopAtLevel=1",)  # to compile, for a program that runs once


def store_kafka() -> None:
    """Makes the archives of a broker and of MirrorMaker2, unless they are there. Raises DaybookError, OSError."""
    jars = jars_folder("kafka")
    node, mirror = class_archive(NODE, jars), class_archive(MIRROR, jars)
    with one_at_a_time("classes"):
        if node.file.exists() and mirror.file.exists():
            return
        print("storing the classes of Kafka, with which it starts faster (once, half a minute)", flush=True)
        # One is left of a run that was interrupted: a JVM that maps an archive writes none.
        for archive in (node, mirror):
            archive.file.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="daybook-classes-") as folder:
            _run_kafka(Path(folder), node, mirror)


def store_spark() -> None:
    """Makes the archive of Spark, unless it is there. Raises DaybookError, OSError."""
    if not spark_archive().file.exists():
        print("storing the classes of Spark, with which it starts faster (once, a minute)", flush=True)
        _run_spark(spark_archive())


PROGRAMS = {"kafka": store_kafka, "spark": store_spark}


def _run_kafka(folder: Path, node: ClassArchive, mirror: ClassArchive) -> None:
    """A secured broker, and a mirror from it to itself."""
    authority = Authority(folder / "identities")
    authority.prepare([ADMIN])
    ports = _free_ports(4)
    broker = lone_broker(folder / "broker", *ports[:2], internal_port=ports[2], authority=authority)
    address = broker.own_address
    copy = MirrorPlace(folder / "mirror", ports[3], "home", "away", address, address, ["order.events"])
    with _storing(node) as options, _running(broker.prepare(), folder, options) as child:
        child.wait_until(broker.ready, NODE_SECONDS)
        with _storing(mirror) as options, _running(prepare_mirror(copy), folder, options) as copier:
            copier.wait_until(lambda: listening(copy.port), NODE_SECONDS)


def _run_spark(archive: ClassArchive) -> None:
    job = [sys.executable, str(ROOT / "analytics" / "jobs" / "first_steps.py")]
    with _storing(archive) as options:
        environment = os.environ | spark_environment() | {"SPARK_SUBMIT_OPTS": " ".join([*options, *QUICK])}
        done = subprocess.run(
            job, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        if done.returncode:
            raise NotReady(f"Spark: {done.stderr.strip().splitlines()[-1]}")


@contextmanager
def _storing(archive: ClassArchive) -> Iterator[list[str]]:
    """Yields the options of a JVM that writes the archive when it ends, which is within the block."""
    archive.file.parent.mkdir(parents=True, exist_ok=True)
    if archive.base is not None and not archive.base.exists():
        with replaced_at_once(archive.base) as fresh:
            dump = [str(find_java().executable), "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}"]
            subprocess.run(dump, capture_output=True)
            if not fresh.exists():
                raise NotReady("this JVM stores no classes")
    with replaced_at_once(archive.file) as fresh:
        yield [*archive.shared(), f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:cds=off"]
        if not fresh.exists():
            raise NotReady("this JVM stores no classes")


@contextmanager
def _running(program: Program, folder: Path, options: list[str]) -> Iterator[Child]:
    """A program with more options of its JVM; it is stopped cleanly, and may take its time."""
    java, *rest = program.command
    command = (java, *options, *QUICK, *rest)
    child = Child(
        replace(program, command=command, stop_seconds=STORE_SECONDS), folder / f"{program.name}.log"
    )
    try:
        yield child
    finally:
        child.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            PROGRAMS[name]()
    except (DaybookError, OSError) as failure:
        print(f"no archive of classes ({failure}): Kafka and Spark start slower, and nothing else changes")
