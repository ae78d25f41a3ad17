"""The code of an earlier commit, for tests that run it beside this one."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from infra.base.settings import ROOT


def unpack(commit: str, folder: Path) -> Path:
    """Writes a commit's contracts and services into the folder. Skips the test where the history lacks the commit."""
    there = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", commit], check=False, capture_output=True)
    if there.returncode:
        pytest.skip("the history does not reach back to the other version")
    packed = subprocess.check_output(["git", "-C", ROOT, "archive", commit, "contracts", "services"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder
