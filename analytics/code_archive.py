"""Our code as one archive that executors on other machines unpack."""

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("analytics", "contracts", "services")
KINDS = frozenset({".py", ".avsc", ".json", ".yaml"})


def code_archive(root: Path) -> Path:
    """A zip of what the Python workers import, and the schemas; removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="daybook-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "daybook.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.suffix in KINDS:
                    out.write(file, file.relative_to(root))
    return archive
