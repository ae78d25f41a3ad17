"""Which Java is chosen, and what PySpark gets when it is the bundled one."""

import os
import subprocess
from pathlib import Path

import certifi
import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from infra.stack.embedded import java
from infra.stack.embedded.java import find_java, java_home_for_spark, trust_options


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


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_the_bundled_java_trusts_what_the_machine_trusts(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(no_java / "absent.pem"))
    assert trust_options(find_java()) == []
    certificates = Path(certifi.where())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    assert trust_options(java.Java(no_java, bundled=False)) == []
    options = trust_options(find_java())
    store = no_java / "cache" / "truststore.p12"
    assert f"-Djavax.net.ssl.trustStore={store}" in options
    trusted = pkcs12.load_pkcs12(store.read_bytes(), java.TRUST_PASSWORD.encode()).additional_certs
    assert len(trusted) == certificates.read_text().count("BEGIN CERTIFICATE")
