"""Which Java is chosen, what PySpark gets when it is the bundled one, and how jars are fetched."""

import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from infra.base.errors import JarsNotResolved
from infra.stack.embedded import java
from infra.stack.embedded.java import ClassArchive, class_archive, find_java, java_home_for_spark


def installed(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither JAVA_HOME nor a java on the path; the cache is the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("DAYBOOK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_goes_before_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = installed(no_java / "path-jdk", "21.0.1")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert find_java().home == on_path
    chosen = installed(no_java / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert find_java() == java.Java(chosen, bundled=False)
    assert java_home_for_spark() == chosen


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_passed_over(no_java: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(no_java / "old", version)))
    assert find_java().bundled


@pytest.mark.usefixtures("no_java")
def test_the_bundled_java_runs_with_the_module_that_it_lacks() -> None:
    home = java_home_for_spark()
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert done.returncode == 0, done.stderr
    assert java_home_for_spark() == home


def test_a_jvm_maps_only_an_archive_that_exists(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "node.jsa", base=None)
    assert archive.options == []
    archive.file.touch()
    assert f"-XX:SharedArchiveFile={archive.file}" in archive.options


def test_an_archive_is_for_one_jvm(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = Path("kafka-1")
    bundled = class_archive("node", jars)
    assert bundled.base is not None, "the JVM of the wheel brings no archive of Java's own classes"
    assert bundled.shared(bundled.file) == [f"-XX:SharedArchiveFile={bundled.base}:{bundled.file}"]
    chosen = installed(no_java / "jdk", "17.0.15")
    (chosen / "lib" / "server").mkdir(parents=True)
    (chosen / "lib" / "server" / "classes.jsa").touch()
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    own = class_archive("node", jars)
    assert own.base is None
    assert own.file != bundled.file
    assert own.file != class_archive("node", Path("kafka-2")).file


class Repository(ThreadingHTTPServer):
    """Has one jar, and loses the connection of so many requests."""

    def __init__(self, losing: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.losing = losing


class Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        if self.path != "/org/apache/kafka/clients/4.1/clients-4.1.jar":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.server.losing -= 1
        self.wfile.write(b"j" if self.server.losing >= 0 else b"jar")

    def log_message(self, *_: object) -> None:
        pass


def fetch(into: Path, monkeypatch: pytest.MonkeyPatch, losing: int, revision: str = "4.1") -> None:
    with Repository(losing) as repository:
        monkeypatch.setattr(java, "CENTRAL", f"http://127.0.0.1:{repository.server_port}")
        serving = Thread(target=repository.serve_forever)
        serving.start()
        try:
            java._fetch([java.Jar("org.apache.kafka", "clients", revision, "")], into)
        finally:
            repository.shutdown()
            serving.join()


@pytest.mark.parametrize("losing", [0, 2])
def test_a_jar_is_fetched_by_its_coordinates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losing: int
) -> None:
    fetch(tmp_path / "jars", monkeypatch, losing)
    assert (tmp_path / "jars" / "clients-4.1.jar").read_bytes() == b"jar"


@pytest.mark.parametrize(("losing", "revision"), [(3, "4.1"), (0, "4.2")])
def test_a_jar_that_cannot_be_fetched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losing: int, revision: str
) -> None:
    with pytest.raises(JarsNotResolved, match=f"clients/{revision}/clients-{revision}.jar could not be"):
        fetch(tmp_path / "jars", monkeypatch, losing, revision)
