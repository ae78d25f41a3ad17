"""`daybook sbom` names everything that the locks and the compose files name, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from infra.base.settings import ROOT
from infra.cli.sbom import app, document

COMPONENTS = {component["purl"]: component for component in document(ROOT)["components"]}


def test_every_locked_package_and_jar_is_there() -> None:
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    jars = {
        line.split()[0]
        for line in (ROOT / "infra" / "jars.lock").read_text("utf-8").splitlines()
        if "sha256:" in line
    }
    kinds = Counter(purl.partition("/")[0] for purl in COMPONENTS)
    assert kinds["pkg:pypi"] == len(re.findall(r"^[\w.-]+(?:\[.*?\])?==", lock, re.MULTILINE))
    assert kinds["pkg:maven"] == len(jars)


def test_a_jar_has_the_hash_of_the_lock_and_an_image_its_version() -> None:
    jars = [
        component
        for purl, component in COMPONENTS.items()
        if purl.startswith("pkg:maven/org.apache.kafka/kafka_2.13@")
    ]
    lock = (ROOT / "infra" / "jars.lock").read_text("utf-8")
    assert len(jars) == 2  # that of the shop, and the next release
    assert all(jar["hashes"][0]["content"] in lock for jar in jars)
    assert COMPONENTS["pkg:docker/postgres@18"]["type"] == "container"
    assert not [purl for purl in COMPONENTS if purl.startswith("pkg:docker/daybook")]


def test_a_package_with_extras_and_one_with_a_marker_are_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text(
        "confluent-kafka[avro]==2.16.0 \\\n    --hash=sha256:00\nTyping_Extensions==4.0 ; python_version < '3.12' \\\n"
    )
    (tmp_path / "Dockerfile").write_text("FROM python:3.13-slim AS python\nFROM python AS code\n")
    purls = {component["purl"] for component in document(tmp_path)["components"]}
    assert {
        "pkg:pypi/confluent-kafka@2.16.0",
        "pkg:pypi/typing-extensions@4.0",
        "pkg:docker/python@3.13-slim",
    } <= purls
    assert not {purl for purl in purls if purl.startswith("pkg:docker/python@3.13-slim AS")}


def test_it_is_printed_as_json() -> None:
    printed = msgspec.json.decode(CliRunner().invoke(app, []).output)
    assert (printed["bomFormat"], printed["specVersion"]) == ("CycloneDX", "1.6")
