"""One client that writes and never repeats: what each write was told, and after how long."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import httpx

from infra.base.background import Background

EVERY_SECONDS = 0.1
ANSWER_SECONDS = 20.0
SKU = "probe-1"


@dataclass(frozen=True)
class Told:
    """One answer: `status` 0 where there was none, `code` the problem's, times in seconds since 1970."""

    status: int
    code: str
    retry_after: str
    asked: float
    at: float


class WriteProbe(Background):
    """Receives one unit of a SKU, again and again, between `with` and its end. `told` is in order."""

    def __init__(self, inventory_url: str, name: str) -> None:
        super().__init__("writes")
        self._url, self._name = inventory_url, name
        self.told: list[Told] = []

    def between(self, start: float, end: float) -> list[Told]:
        """What was asked and told within these times."""
        return [each for each in list(self.told) if start <= each.asked and each.at <= end]

    def failed(self) -> Counter[str]:
        """Answers that were no success, counted by status and code."""
        return Counter(
            f"{each.status} {each.code}".strip()
            for each in self.told
            if each.status >= 300 or not each.status
        )

    def _work(self) -> None:
        number = 0
        with httpx.Client(base_url=self._url, timeout=ANSWER_SECONDS, trust_env=False) as client:
            while not self._stopping.wait(EVERY_SECONDS):
                number += 1
                self.told.append(self._once(client, f"{self._name}-{number}"))

    def _once(self, client: httpx.Client, key: str) -> Told:
        asked = time.time()
        body = {"quantity": 1, "reference": key}
        try:
            answer = client.post(f"/stock/{SKU}/receipts", json=body, headers={"Idempotency-Key": key})
        except httpx.HTTPError as error:
            return Told(0, type(error).__name__, "", asked, time.time())
        code = "" if answer.is_success else str(answer.json().get("code", ""))
        return Told(answer.status_code, code, answer.headers.get("Retry-After", ""), asked, time.time())
