"""What the clients of drills and tests send: orders of one to three lines over a few dozen SKUs, and what follows."""

import heapq
from random import Random
from typing import Any

import msgspec

from infra.lab.load.clients import Api, Request

SKUS = tuple(f"drill-{number:02}" for number in range(36))
NEVER_STOCKED = ("drill-none-1", "drill-none-2")
PLENTY = 1_000_000
FOLLOWS_AFTER = (0.5, 4.0)  # seconds
SHIPPED, CANCELLED = 0.55, 0.7  # cumulative: the rest stays confirmed
RETURNED = 0.3
REJECTED = 0.03
DELIVERY = 0.04


class Shopping:
    """Decides the next command. `name` begins every order's id, so that two loads have no order in common."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = Random(f"shopping {seed} {name}")
        self._name = name
        self._number = 0
        self._later: list[tuple[float, int, Request]] = []
        self._lines: dict[str, list[dict[str, Any]]] = {}

    def opening(self) -> list[Request]:
        """One delivery of each SKU that is ever in stock."""
        return [self._delivery(sku, PLENTY, f"opening-{self._name}") for sku in SKUS]

    def next(self, now: float) -> Request:
        """A command whose time has come, else a new order or, now and then, a delivery."""
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        self._number += 1
        if self._random.random() < DELIVERY:
            reference = f"more-{self._name}-{self._number}"
            return self._delivery(self._random.choice(SKUS), self._random.randint(1, 50), reference)
        return self._order(f"{self._name}-{self._number}")

    def follow_up(self, request: Request, now: float) -> None:
        """Plan what follows an accepted command."""
        if request.kind not in ("order", "shipment"):
            return
        due = now + self._random.uniform(*FOLLOWS_AFTER)
        if request.kind == "shipment":
            if self._random.random() < RETURNED:
                self._plan(due, self._return(request.entity))
            return
        share = self._random.random()
        if share < SHIPPED:
            self._plan(due, self._of_order("shipment", request.entity, {"carrier": "drill"}))
        elif share < CANCELLED:
            self._plan(due, self._of_order("cancellation", request.entity, {"reason": "a drill"}))

    def _plan(self, due: float, request: Request) -> None:
        self._number += 1
        heapq.heappush(self._later, (due, self._number, request))

    def _order(self, order_id: str) -> Request:
        skus = self._random.sample(SKUS, self._random.randint(1, 3))
        if self._random.random() < REJECTED:
            skus[0] = self._random.choice(NEVER_STOCKED)
        lines = [
            {
                "sku": sku,
                "quantity": self._random.randint(1, 9),
                "unit_price": f"{self._random.randint(1, 40)}.50",
            }
            for sku in skus
        ]
        self._lines[order_id] = lines
        body = {"order_id": order_id, "country": "France", "currency": "EUR", "lines": lines}
        return Request(
            "order", Api.ORDER, "/orders", f"place-{order_id}", order_id, msgspec.json.encode(body)
        )

    def _return(self, order_id: str) -> Request:
        line = self._random.choice(self._lines[order_id])
        goods = [{"sku": line["sku"], "quantity": self._random.randint(1, line["quantity"])}]
        return self._of_order("return", order_id, {"lines": goods, "reason": "a drill"})

    @staticmethod
    def _of_order(kind: str, order_id: str, body: dict[str, Any]) -> Request:
        path = f"/orders/{order_id}/{'returns' if kind == 'return' else kind}"
        return Request(kind, Api.ORDER, path, f"{kind}-{order_id}", order_id, msgspec.json.encode(body))

    @staticmethod
    def _delivery(sku: str, quantity: int, reference: str) -> Request:
        body = msgspec.json.encode({"quantity": quantity, "reference": reference})
        return Request("delivery", Api.INVENTORY, f"/stock/{sku}/receipts", reference, sku, body)
