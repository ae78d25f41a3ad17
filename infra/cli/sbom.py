"""`daybook sbom`: what the shop is made of, as a CycloneDX document, and which published advisories are about it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
import yaml

from analytics.terminal import Table
from infra.base.settings import ROOT
from infra.cli.output import fail, notes, results
from infra.stack.embedded.java import LOCK, read_lock

app = typer.Typer()

# A line that begins a package of requirements.lock.
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_BASE_IMAGE = re.compile(r"^FROM (\S+:\S+)", re.MULTILINE)
_OWN_IMAGE = "daybook-"
ADVISORIES = ROOT / "infra" / "advisories.txt"


@app.command()
def sbom(
    advisories: Annotated[
        bool, typer.Option("--advisories", help="Show the published advisories about it instead.")
    ] = False,
) -> None:
    """Print what the shop is made of: Python packages, jars and container images, as CycloneDX 1.6 (JSON).

    From the lock files, without a network. Redirect it to a file for a scanner: `./daybook sbom > sbom.json`.
    `--advisories` compares it with infra/advisories.txt; its exit code is 1 if one applies that is not accepted there.
    """
    if advisories:
        _show(list(matches(document(ROOT)["components"], ADVISORIES.read_text("utf-8"))))
        return
    for line in msgspec.json.format(msgspec.json.encode(document(ROOT)), indent=1).decode().splitlines():
        results.print(line)


class Match(NamedTuple):
    """A component in a version that an advisory is about; `accepted`: why it may stay, or empty."""

    package: str
    version: str
    affected: str
    id: str
    accepted: str


def matches(components: Iterable[Mapping[str, Any]], advisories: str) -> Iterator[Match]:
    """The advisories that are about these components, by package and id. `advisories`: the text of the file."""
    ranges, _, reasons = advisories.partition("[accepted]\n")
    accepted = {(package, number): why for package, number, why in _columns(reasons)}
    about: dict[str, list[tuple[str, str]]] = {}
    for package, affected, number in _columns(ranges):
        about.setdefault(package, []).append((affected, number))
    for component in components:
        package, _, version = str(component["purl"]).removeprefix("pkg:").rpartition("@")
        # Of an image, `18` is the newest 18; of a package it is 18.0.
        missing = float("inf") if component["type"] == "container" else 0
        for affected, number in sorted(about.get(package, ()), key=lambda row: row[1]):
            if _contains(affected, version, missing):
                yield Match(package, version, affected, number, accepted.get((package, number), ""))


def _columns(text: str) -> Iterator[list[str]]:
    """Of each line three columns, of which the last one may have spaces."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return (line.split(maxsplit=2) for line in lines)


def _contains(affected: str, version: str, missing: float) -> bool:
    """Whether a version lies in a range such as `>=2.0,<2.3.1`. Of versions, only their numbers are compared."""
    for bound in affected.split(","):
        operator, limit = re.match(r"(>=|<=|<)(.+)", bound).groups()  # type: ignore[union-attr] # the file is ours
        ours, theirs = _numbers(version), _numbers(limit)
        length = max(len(ours), len(theirs))
        ours += [missing] * (length - len(ours))
        theirs += [0.0] * (length - len(theirs))
        if not {">=": ours >= theirs, "<=": ours <= theirs, "<": ours < theirs}[operator]:
            return False
    return True


def _numbers(version: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+", version)]


def _show(matched: list[Match]) -> None:
    table = Table("advisory", "about", "affected", "accepted, because")
    table.columns[1].overflow = table.columns[2].overflow = "fold"
    for match in matched:
        table.add_row(match.id, f"{match.package} {match.version}", match.affected, match.accepted)
    if matched:
        results.print(table)
    if left := [match for match in matched if not match.accepted]:
        names = ", ".join(sorted({f"{match.package} {match.version}" for match in left}))
        fail(
            f"{len(left)} of {len(matched)} advisories are not accepted: {names}. Lock a version that mends them, "
            "or say in infra/advisories.txt why it may stay"
        )
    notes.print(
        f"Advisories that apply: {len(matched)}, all accepted. infra/advisories.txt says how old the list is."
    )


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


_Compose.add_multi_constructor("!", lambda *_: None)


def _component(kind: str, name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
