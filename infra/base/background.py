"""Work beside a block of code: in a thread of its own, from the beginning of a `with` to its end; or only a while."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Self, TypeVar

Result = TypeVar("Result")


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


class Impatient(Generic[Result]):
    """A call that may hang, begun at once. Its thread keeps neither the caller nor the end of the process waiting."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._future: Future[Result] = Future()
        threading.Thread(target=self._run, name="impatient", args=(call,), daemon=True).start()

    def result(self, until: float) -> Result | None:
        """The result; None where there is none by `until`, of time.monotonic(), or the call ended with TimeoutError.

        Raises any other exception of the call.
        """
        try:
            return self._future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return None

    def _run(self, call: Callable[[], Result]) -> None:
        try:
            self._future.set_result(call())
        except BaseException as error:  # raised by result
            self._future.set_exception(error)
