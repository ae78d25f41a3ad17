"""Environment variables of the order API beside those of every write API; times in seconds."""

from __future__ import annotations

from services.edge.settings import ApiSettings
from services.kernel.settings import Positive


class OrderApiSettings(ApiSettings):
    """An order not settled after `settle_seconds` expires; `settled_wait_seconds` bounds `?wait=settled`."""

    settle_seconds: Positive = 60.0
    settled_wait_seconds: Positive = 5.0
