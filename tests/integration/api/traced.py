"""A process of the shop that notes which files run: `python -m … SERVICE PART FILE`.

It begins at SIGUSR1, and at SIGUSR2 writes their names into FILE: of the thread that runs the requests or the
loop, and of the one that reads outcomes.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[3]
ours = (str(ROOT / "services"), str(ROOT / "contracts"))


def main() -> int:
    service, part, target = sys.argv[1:]
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    def begin(*_: Any) -> None:
        sys.setprofile(note if threading.current_thread().name == "outcomes" else None)

    def write(*_: Any) -> None:
        names = sorted(str(Path(file).relative_to(ROOT)) for file in files.copy() if file.startswith(ours))
        Path(f"{target}.part").write_text(json.dumps(names))
        Path(f"{target}.part").rename(target)

    threading.setprofile(begin)
    signal.signal(signal.SIGUSR1, lambda *_: files.clear())
    signal.signal(signal.SIGUSR2, write)
    sys.argv[1:] = [part]
    sys.setprofile(note)
    code: int = getattr(import_module(f"services.{service}.service"), service.upper()).main()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
