"""Clients that find the new site by themselves: what a name service or a load balancer does."""

from __future__ import annotations

import threading
import time
from typing import Self

from infra.drills.load import Load
from infra.sites.asking import ControlReader, SiteSilent
from infra.sites.site import Site

EVERY_SECONDS = 0.1


class Following:
    """While a command goes on: sends the clients to `site` as soon as it takes requests; at the latest when
    the block ends. `at` is when that was, seconds since 1970."""

    def __init__(self, load: Load, site: Site) -> None:
        self._load, self._site = load, site
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self.at = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._switch()

    def _follow(self) -> None:
        reader = ControlReader(self._site.bootstrap)
        try:
            while not self._over.wait(EVERY_SECONDS):
                if self._taking(reader):
                    self._switch()
                    return
        finally:
            reader.close()

    def _switch(self) -> None:
        self._load.switch(self._site.name)
        self.at = self.at or time.time()

    @staticmethod
    def _taking(reader: ControlReader) -> bool:
        try:
            return reader.read().taking
        except SiteSilent:
            return False
