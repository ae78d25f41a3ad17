"""`daybook sbom`: what the shop is made of, as a CycloneDX document."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml

from infra.base.settings import ROOT
from infra.cli.output import results
from infra.stack.embedded.java import LOCK, read_lock

app = typer.Typer()

# A line that begins a package of requirements.lock.
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_BASE_IMAGE = re.compile(r"^FROM (\S+:\S+)", re.MULTILINE)
_OWN_IMAGE = "daybook-"


@app.command()
def sbom() -> None:
    """Print what the shop is made of: Python packages, jars and container images, as CycloneDX 1.6 (JSON).

    From the lock files, without a network. Redirect it to a file for a scanner: `./daybook sbom > sbom.json`.
    """
    for line in msgspec.json.format(msgspec.json.encode(document(ROOT)), indent=1).decode().splitlines():
        results.print(line)


def document(root: Path) -> dict[str, Any]:
    """The document; `components` are sorted by their package URL.

    A Python package has no hash here: requirements.lock has one for each of its wheels.
    """
    components = [*_packages(root), *_jars(), *_images(root)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "daybook", "bom-ref": "daybook"}},
        "components": sorted(components, key=lambda component: str(component["purl"])),
    }


def _packages(root: Path) -> Iterator[dict[str, Any]]:
    """Those of requirements.lock. A package with several versions, for several Pythons, comes once for each."""
    lines = (root / "requirements.lock").read_text("utf-8").splitlines()
    for name, version in dict.fromkeys(match.groups() for line in lines if (match := _PACKAGE.match(line))):
        purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        yield _component("library", name, version, purl)


def _jars() -> Iterator[dict[str, Any]]:
    """Those of infra/jars.lock, each once, however many sets contain it."""
    for jar in {jar for jars in read_lock(LOCK.read_text("utf-8")).values() for jar in jars}:
        purl = f"pkg:maven/{jar.organisation}/{jar.module}@{jar.revision}"
        yield {
            **_component("library", jar.module, jar.revision, purl),
            "group": jar.organisation,
            "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        }


def _images(root: Path) -> Iterator[dict[str, Any]]:
    """Those that the compose files start, and those that the Dockerfile builds on."""
    names = set(_BASE_IMAGE.findall((root / "Dockerfile").read_text("utf-8")))
    for file in sorted((root / "infra" / "compose").glob("*.yml")):
        services = yaml.load(file.read_text("utf-8"), _Compose).get("services", {}).values()
        # of `${VARIABLE:-image}` the image
        images = (service["image"].rpartition(":-") for service in services if "image" in service)
        names |= {image.removesuffix("}") for _, _, image in images}
    for image in names:
        if not image.startswith(_OWN_IMAGE):
            name, _, version = image.rpartition(":")
            yield _component("container", name, version, f"pkg:docker/{name}@{version}")


class _Compose(yaml.SafeLoader):
    """Compose has tags of its own, such as `!reset`; their values are not needed here."""

    def without_value(self, _suffix: str, _node: yaml.Node) -> None:
        return None


_Compose.add_multi_constructor("!", _Compose.without_value)


def _component(kind: str, name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
