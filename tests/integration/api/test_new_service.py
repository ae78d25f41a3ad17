"""A service is one folder and one declaration, and its topics in the catalogue: everything else follows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from infra.base.ports import HOST
from services.kernel.record.envelope import Token
from tests.integration.api.processes import process
from tests.ports import free_ports
from tests.stack import own_broker

ROOT = Path(__file__).parents[3]
NAME = "voucher"

FOLDER = {
    "__init__.py": "",
    "domain/__init__.py": "",
    "domain/decider.py": '''
"""A voucher is issued once."""

from dataclasses import dataclass

from contracts.voucher.events import VoucherIssued
from services.kernel.model.decider import Decider, Refused


@dataclass(frozen=True)
class Voucher:
    amount: int = 0


def decide(command, voucher):
    if voucher.amount:
        raise Refused("already_issued", "this voucher was issued before")
    return [VoucherIssued(command.voucher_id, command.amount, command.occurred_at)]


voucher_decider = Decider(Voucher(), decide, lambda _, event: Voucher(event.amount), lambda _: "issued")
''',
    "api.py": '''
"""The write API of vouchers."""

from pydantic import BaseModel
from starlette.requests import Request

from contracts.voucher.commands import IssueVoucher
from services.edge.app import api_router
from services.edge.identity import scopes
from services.edge.problems import Code
from services.edge.requests import ChangeRequest, EntityId, Headers, Quantity, WriteRoute
from services.edge.writes import Resource, WriteApi, succeeded, write_problems

ABOUT = {"voucher_id": "V-1"}
EXAMPLE = {**ABOUT, "version": 1, "status": "issued", "command_id": "7f0f3a52-6a25-5f1e-8a52-0a2d7f2f6c90"}


class VoucherRequest(ChangeRequest):
    amount: Quantity

    def command(self, voucher_id, now):
        return IssueVoucher(voucher_id, self.amount, now)


class VoucherResponse(BaseModel):
    voucher_id: str
    version: int
    status: str
    command_id: str


def create(settings):
    api = WriteApi("voucher", settings, Resource("voucher", "voucher_id", "/vouchers/"))
    router = api_router("vouchers", route_class=WriteRoute, dependencies=[scopes("ops:act")])

    @router.post(
        "/vouchers/{voucher_id}/issue",
        summary="Issue a voucher",
        response_model=VoucherResponse,
        responses={
            200: succeeded("Issued", VoucherResponse, EXAMPLE),
            **write_problems(ABOUT, {"already_issued": Code(409, "already_issued", ABOUT)}),
        },
    )
    async def issue(request: Request, voucher_id: EntityId, body: VoucherRequest, headers: Headers):
        return await api.writer.change(request, headers, voucher_id, body)

    return api.application(router, title="Vouchers", about="Issue vouchers.")
''',
    "service.py": '''
"""The voucher service: `python -m services.voucher.service api|worker`."""

from services.kernel.model.process import Process
from services.service import Service
from services.voucher.domain.decider import Voucher, voucher_decider

VOUCHER = Service(
    "voucher", voucher_decider, Process(), (Voucher,), api_port=27405, health_port=27410, worker_port=27416
)

if __name__ == "__main__":
    raise SystemExit(VOUCHER.main())
''',
}
FIELDS = [
    {"name": "voucher_id", "type": "string"},
    {"name": "amount", "type": "int"},
    {"name": "occurred_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
TOPIC = "\n  {name}:\n    about: Of a test.\n    key: voucher id\n    {lifetime}\n    schemas: [{schemas}]\n"
TOPICS = "".join(
    TOPIC.format(name=f"{NAME}.{name}", lifetime=lifetime, schemas=schemas)
    + "    written_by: [voucher-worker]\n    read_by: [voucher-worker]\n"
    for name, lifetime, schemas in (
        ("commands", "retention: 7d", "voucher/IssueVoucher, kernel/OutcomeBatch"),
        ("inbox", "retention: 7d", "kernel/OutcomeBatch"),
        ("events", "retention: forever", "voucher/VoucherIssued, kernel/EpochOpened"),
        ("answers", "retention: 24h", "kernel/Answer"),
        ("state", "cleanup: compact", "kernel/Snapshot, kernel/Watermark"),
        ("outcomes", "retention: 1h", "kernel/OutcomeBatch"),
        ("parked", "cleanup: compact", "kernel/ParkedCommand"),
    )
)
PRINCIPALS = f"""
  {NAME}-api:
    about: Of a test.
  {NAME}-worker:
    about: Of a test.
    groups: {{{NAME}-workers: [read]}}
    transactional_ids: [{NAME}-slot-*]
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code with one service more: its folder, its schemas and its part of the catalogue."""
    tree = tmp_path_factory.mktemp("tree")
    for part in ("contracts", "services", "infra", "analytics"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FOLDER.items():
        file = tree / "services" / NAME / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip())
    schemas = tree / "contracts" / NAME
    schemas.mkdir()
    (schemas / "__init__.py").touch()
    for name in ("IssueVoucher", "VoucherIssued"):
        schema = {"type": "record", "name": name, "namespace": f"daybook.{NAME}", "fields": FIELDS}
        (schemas / f"{name}.avsc").write_text(json.dumps(schema))
    catalogue = tree / "contracts/topics.yaml"
    topics, who_connects, principals = catalogue.read_text().partition("\n# Who connects to Kafka")
    catalogue.write_text(topics + TOPICS + who_connects + principals + PRINCIPALS)
    run(tree, "-m", "infra.cli", "contracts", "lock")
    run(tree, "-m", "infra.cli", "contracts", "check")
    return tree


def run(tree: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=tree, check=True)


@pytest.fixture(scope="module")
def ports() -> tuple[int, ...]:
    """Of the worker, of the API, and of the API's health and metrics."""
    return free_ports(3)


@pytest.fixture(scope="module")
def vouchers(
    tree: Path, ports: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """The new service's API, before its worker, on a broker of their own."""
    worker_port, api_port, health_port = ports
    opening = (
        "from infra.log.topics import create_topics, ensure_site; create_topics('{0}'); ensure_site('{0}')"
    )
    with ExitStack() as stack:
        kafka = stack.enter_context(own_broker(tmp_path_factory.mktemp("broker")))
        run(tree, "-c", opening.format(kafka))
        stack.enter_context(process(NAME, "worker", kafka, worker_port, str(tree)))
        stack.enter_context(process(NAME, "api", kafka, api_port, str(tree), health_port=str(health_port)))
        yield stack.enter_context(httpx.Client(base_url=f"http://{HOST}:{api_port}", trust_env=False))


def test_a_command_goes_through_a_new_service(vouchers: httpx.Client) -> None:
    first, again = (
        vouchers.post("/vouchers/V-1/issue", json={"amount": 25}, headers={"Idempotency-Key": "one"})
        for _ in range(2)
    )
    assert first.status_code == again.status_code == 200
    assert {**first.json(), "command_id": ""} == {
        "voucher_id": "V-1",
        "version": 1,
        "status": "issued",
        "command_id": "",
    }
    assert again.headers["Idempotency-Replayed"] == "true"
    assert Token.decode(first.headers["Consistency-Token"]).stream == "voucher/V-1"
    refused = vouchers.post("/vouchers/V-1/issue", json={"amount": 30})
    assert (refused.status_code, refused.json()["code"]) == (409, "already_issued")


def test_the_new_service_has_health_metrics_and_a_document(
    vouchers: httpx.Client, ports: tuple[int, ...]
) -> None:
    health = f"http://{HOST}:{ports[2]}"
    assert vouchers.get(f"{health}/health/ready").json() == {"status": "ready"}
    assert "daybook_http_commands_total" in vouchers.get(f"{health}/metrics").text
    assert "/vouchers/{voucher_id}/issue" in vouchers.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("services.voucher.service", ("fastapi", "uvicorn", "confluent_kafka", "services.kernel.worker")),
        ("services.voucher.api", ("services.kernel.worker.worker", "services.kernel.worker.execution")),
        ("services.kernel.worker.worker", ("fastapi", "uvicorn", "services.edge")),
    ],
)
def test_a_part_loads_no_code_of_the_other(tree: Path, module: str, absent: tuple[str, ...]) -> None:
    run(tree, "-c", f"import sys, {module}; assert not {{*{absent}}} & {{*sys.modules}}")
