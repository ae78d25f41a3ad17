"""Price lists that suppliers drop into a folder, appended to the one file that Kafka's file source follows.

`python -m infra.stack.compose.intake`, over the folder DAYBOOK_LISTS: `new/` is where lists are dropped,
`taken/` and `refused/` keep them unchanged, `inbox` is the file. Connect checks the lines; this process checks only
a file's form: UTF-8, and the header. After a kill a list may be appended twice: for a SKU the last price counts.
"""

import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from infra.base.settings import FromEnvironment

HEADER = "sku,supplier,price,currency"
LOOK_SECONDS = 1.0
LOOKED = Path("/tmp/looked")
Seen = Mapping[str, tuple[int, int]]
"""Size and time of the last change of each file in `new/`, by name."""


class IntakeSettings(FromEnvironment):
    """Environment variable: DAYBOOK_LISTS."""

    lists: Path


def make_folders(lists: Path) -> None:
    """Create the folders of lists, and the file that is followed."""
    for name in ("new", "taken", "refused"):
        (lists / name).mkdir(parents=True, exist_ok=True)
    (lists / "inbox").touch()


def look(lists: Path, before: Seen) -> Seen:
    """Take every list that has not changed since the previous look. Returns what exists now."""
    now = {}
    for file in sorted((lists / "new").glob("*.csv")):
        state = file.stat()
        now[file.name] = (state.st_size, state.st_mtime_ns)
        if before.get(file.name) == now[file.name]:
            _take(lists, file)
    return now


def inbox_lines(name: str, content: bytes) -> str:
    """A list's lines as Connect gets them: `NAME|NUMBER|LINE|`, in ASCII. Raises ValueError for another form.

    The last bar marks the end: an incomplete line, after a kill, is no price. ASCII, because the file source counts
    characters and skips bytes.
    """
    header, *rows = content.decode("utf-8-sig").splitlines() or [""]
    if header.strip() != HEADER:
        raise ValueError(f"the first line is not {HEADER}")
    lines = [f"{name}|{number}|{row.strip()}|" for number, row in enumerate(rows, 2) if row.strip()]
    return "".join(line.encode("ascii", "backslashreplace").decode() + "\n" for line in lines)


def _take(lists: Path, file: Path) -> None:
    # a name of its own: the next list may be called the same
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    name = f"{moment}-{re.sub(r'[^A-Za-z0-9._~-]', '_', file.name)}"
    try:
        lines = inbox_lines(name, file.read_bytes())
    except ValueError as reason:
        file.rename(lists / "refused" / name)
        print(f"refused {name}: {reason}", flush=True)
        return
    _append(lists / "inbox", lines)
    file.rename(lists / "taken" / name)
    print(f"taken {name}: {lines.count(chr(10))} lines", flush=True)


def _append(inbox: Path, lines: str) -> None:
    with inbox.open("r+b") as file:
        if end := file.seek(0, os.SEEK_END):
            file.seek(end - 1)
            if file.read(1) != b"\n":
                # a predecessor was killed in the midst of a line
                file.write(b"\n")
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    """Look for ever."""
    lists = IntakeSettings().lists  # type: ignore[call-arg] # from the environment
    seen: Seen = {}
    make_folders(lists)
    while True:
        seen = look(lists, seen)
        LOOKED.touch()
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
