"""The secrets of a site's folder, and where else they stand: in logs, in what commands print, in command lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SHORTEST = 16
# Of a key in PEM the first line: a log may have it as one line or as several.
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*([A-Za-z0-9+/=]+)")
# An access token of our issuer is a secret too, wherever it is not asked for.
TOKEN = re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")
# What is no text of ours: Kafka's and PostgreSQL's own data. Neither has a password in a form that can be used.
DATA = ("broker/logs", "postgres/data", "lake", "marts")
KEPT = ("kafka-identities", "identity", "hash-key", "postgres")


def secrets_of(home: Path) -> dict[str, str]:
    """Every secret in the folder of a site, by where it stands. Raises ValueError for one that is too short to find."""
    secrets = dict(_secrets_of(home))
    if short := [name for name, secret in secrets.items() if len(secret) < SHORTEST]:
        raise ValueError(f"too short: {short}")
    return secrets


def _secrets_of(home: Path) -> Iterator[tuple[str, str]]:
    for file in (*home.glob("hash-key"), *(home / "postgres").glob("*password")):
        yield file.name, file.read_text().strip()
    for file in sorted((home / "kafka-identities").iterdir()):
        text = file.read_text().replace("\\n", "\n")
        for number, key in enumerate(_KEY.findall(text)):
            yield f"{file.name}, key {number}", key
        if file.suffix == ".json" and (password := json.loads(file.read_text()).get("password")):
            yield file.name, password
    for file in sorted((home / "identity").glob("*.json")):
        content = json.loads(file.read_text())
        for key in content.get("keys", [content]):
            if "d" in key:
                yield file.name, key["d"]


def leaks(secrets: Mapping[str, str], home: Path, outputs: Iterable[tuple[str, str]]) -> list[str]:
    """Where a secret stands outside of its own file: below `home`, in command lines, and in `outputs` (a command and
    what it printed). Which and where, never the secret itself. In logs, also an access token."""
    leaked = []
    for file in _texts(home):
        text = file.read_text(errors="replace")
        leaked += [f"{name} in {file.relative_to(home)}" for name in _in(secrets, text)]
        if file.parent.name == "logs" and TOKEN.search(text):
            leaked.append(f"an access token in {file.relative_to(home)}")
    for command, output in outputs:
        leaked += [f"{name} in the output of {command}" for name in _in(secrets, output)]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        leaked += [f"{name} in the command line of {process.name}" for name in _in(secrets, words)]
    return leaked


def _in(secrets: Mapping[str, str], text: str) -> list[str]:
    return [name for name, secret in secrets.items() if secret in text]


def _texts(home: Path) -> Iterator[Path]:
    for file in home.rglob("*"):
        path = file.relative_to(home).as_posix()
        if not path.startswith((*DATA, *KEPT)) and file.is_file():
            yield file
