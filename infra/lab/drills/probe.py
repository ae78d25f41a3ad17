"""Whether reads are served: the query API of one site, asked again and again."""

from __future__ import annotations

import time

import httpx

from infra.base.background import Background
from infra.lab.drills.acknowledged import longest_gap

EVERY_SECONDS = 0.05
ANSWER_SECONDS = 5.0


class ReadProbe(Background):
    """Reads the newest orders of a site's read model between `with` and its end. `refused` are the codes of
    answers that were not 200, and the names of failures."""

    def __init__(self, url: str) -> None:
        super().__init__("reads")
        self._url = url
        self._served: list[float] = []
        self.refused: list[str] = []

    @property
    def served(self) -> int:
        return len(self._served)

    def gap(self, start: float = 0.0, end: float = float("inf")) -> float:
        """The longest time from one answer to the next that touches `start` to `end` (seconds since 1970), in
        seconds; infinite without any."""
        return longest_gap(self._served, start, end)[0] if len(self._served) > 1 else float("inf")

    def _work(self) -> None:
        with httpx.Client(base_url=self._url, timeout=ANSWER_SECONDS, trust_env=False) as client:
            while not self._stopping.wait(EVERY_SECONDS):
                try:
                    answer = client.get("/orders", params={"limit": 1})
                except httpx.HTTPError as error:
                    self.refused.append(type(error).__name__)
                    continue
                if answer.status_code == httpx.codes.OK:
                    self._served.append(time.time())
                else:
                    self.refused.append(str(answer.status_code))
