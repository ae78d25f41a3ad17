"""Programs that a test starts, stops and kills: each keeps its state in its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from infra.base.errors import NotReady
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.kafka import NODE_SECONDS, Node


class Server(ABC):
    """A program that its caller starts and stops repeatedly; its state stays in `folder`.

    `title` names it in errors; a start may take `seconds`.
    """

    def __init__(self, title: str, folder: Path, seconds: float) -> None:
        self._title, self._folder, self._seconds = title, folder, seconds
        self._child: Child | None = None

    @abstractmethod
    def _program(self) -> Program:
        """The program, prepared for a start."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether it serves."""

    @property
    def child(self) -> Child:
        """The running process; raises NotReady before start."""
        if self._child is None:
            raise NotReady(f"{self._title} has not been started")
        return self._child

    def start(self, seconds: float | None = None) -> None:
        """Return when it is ready. Raises NotReady, with the end of its log, when it does not come up."""
        program = self._program()
        self._child = Child(program, self._folder / f"{program.name}.log")
        try:
            self._child.wait_until(self.ready, self._seconds if seconds is None else seconds)
        except NotReady:
            self._child.kill()
            raise

    def stop(self) -> None:
        """Stop it cleanly; its state stays."""
        self.child.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.child.kill()


class NodeServer(Server):
    """A node of Kafka."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.name, node.folder, NODE_SECONDS)
        self.node = node

    @property
    def bootstrap(self) -> str:
        return self.node.address

    def _program(self) -> Program:
        return self.node.prepare()

    def ready(self) -> bool:
        return self.node.ready()
