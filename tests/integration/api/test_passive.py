"""A passive site's write API names the active site."""

from __future__ import annotations

from pathlib import Path

import httpx

from contracts.kernel.records import SiteRole
from infra.log.control import write_role
from tests.integration.api.processes import eventually, process
from tests.ports import free_ports
from tests.stack import site_broker

ACTIVE = "http://127.0.0.1:27402"
RECEIPT = {"quantity": 1, "reference": "at the wrong site"}


def test_a_passive_site_names_the_active_one(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with site_broker(tmp_path) as bootstrap:
        write_role(bootstrap, SiteRole("home", "passive", 2))
        with process("inventory", "api", bootstrap, port, peer_url=ACTIVE, wait_seconds="1"):
            url = f"http://127.0.0.1:{port}/stock/MUG-1/receipts"
            refused = httpx.post(url, json=RECEIPT, headers={"Idempotency-Key": "k"})
            assert (refused.status_code, refused.json()["code"]) == (503, "site_passive")
            assert refused.json()["active_site"] == ACTIVE
            assert ACTIVE in refused.json()["detail"]
            write_role(bootstrap, SiteRole("home", "active", 3))
            eventually(
                lambda: httpx.post(url, json=RECEIPT).json().get("code") != "site_passive",
                "the API does not follow the site's role",
            )
