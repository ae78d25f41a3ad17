"""Work beside a block of code: in a thread of its own, from the beginning of a `with` to its end."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Runs `_work` in a daemon thread. The end of the `with` sets `_stopping` and waits until `_work` has returned."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    @abstractmethod
    def _work(self) -> None:
        """Returns soon after `_stopping` is set."""
