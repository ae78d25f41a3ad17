"""Clients that find the new site by themselves: what a name service or a load balancer does."""

from __future__ import annotations

from infra.base.background import Background
from infra.lab.drills.load import Load
from infra.log.asking import ControlReader, SiteSilent
from infra.stack.site import Site

EVERY_SECONDS = 0.1


class Following(Background):
    """While a command goes on: sends the clients to `site` as soon as it takes requests in an epoch beyond
    `epoch` (a lost site whose broker is started to read its disk still says active); at the latest when the
    block ends."""

    def __init__(self, load: Load, site: Site, epoch: int) -> None:
        super().__init__("following")
        self._load, self._site, self._epoch = load, site, epoch

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._load.switch(self._site.name)

    def _work(self) -> None:
        reader = ControlReader(self._site.bootstrap)
        try:
            while not self._stopping.wait(EVERY_SECONDS):
                if self._taking(reader):
                    self._load.switch(self._site.name)
                    return
        finally:
            reader.close()

    def _taking(self, reader: ControlReader) -> bool:
        try:
            control = reader.read()
            return control.taking and control.role.epoch > self._epoch
        except SiteSilent:
            return False
