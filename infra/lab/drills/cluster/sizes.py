"""How large an order may be, at the edge and at the topic; and a quota on who writes too much."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import msgspec
from confluent_kafka import KafkaError

from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.kafka_tool import run_tool
from infra.lab.cluster.moves import create_placed, delete_topics
from infra.lab.cluster.replicated import replicated
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.records import Numbered
from infra.lab.drills.report import DrillReport
from infra.lab.retail.requests import Api
from services.edge.bodies import MAX_BODY_BYTES
from services.edge.fields import MAX_LINES
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.record.envelope import format_time, now_micros

LONGEST_SKU, LONGEST_CODE = "L" * 64, "postage-" * 8
ANSWER_SECONDS = 60.0
# A broker averages over 11 s: what fits into these seconds is let through at once.
QUOTA_BYTES = 50_000  # a second, of one client
QUOTA_RECORDS, QUOTA_PADDING = 1_000, 1_000
CLIENT = "drill-greedy"
CONFIG = "kafka.admin.ConfigCommand"


def sizes(rig: Rig, seed: int, _folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole."""
    report = DrillReport("cluster sizes", seed, format_time(now_micros()))
    rig.open_shop()
    show("orders of a mebibyte, and more")
    _orders(rig, report)
    show("a record beyond the topic's bound")
    _too_large_for_the_topic(rig, report)
    show("a quota")
    _quota(rig, report)
    return report


def _orders(rig: Rig, report: DrillReport) -> None:
    limit = MAX_BODY_BYTES
    url = rig.urls["home"][Api.ORDER]
    with httpx.Client(base_url=url, timeout=ANSWER_SECONDS, trust_env=False) as client:
        name = f"large-{time.time_ns():x}"
        fits = client.post("/orders", content=_order(name, limit), headers=_headers(name))
        report.promise(f"an order whose body is {limit:,} bytes", "201", _said(fits), fits.status_code == 201)
        other = f"{name}-more"
        beyond = client.post("/orders", content=_order(other, limit + 1), headers=_headers(other))
        report.promise(
            f"one whose body is {limit + 1:,} bytes",
            "413 at the edge",
            _said(beyond),
            beyond.status_code == 413,
        )
    topic = "order.events"
    logged = [
        record
        for record in read_to_end(
            rig.cluster.bootstrap, topic, dict.fromkeys(partitions_of(rig.cluster.bootstrap, topic), 0)
        )
        if record.key() == name.encode()
    ]
    largest = max((len(record.value()) for record in logged), default=0)
    report.promise("its largest event in the log", "there", f"{largest:,} bytes", largest > 0)
    rig.await_rest()
    query = rig.urls["home"][Api.QUERY]
    with httpx.Client(base_url=query, timeout=ANSWER_SECONDS, trust_env=False) as reader:
        shown = reader.get(f"/orders/{name}")
    report.promise("its row in the read model", "200", _said(shown), shown.status_code == 200)


def _headers(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key, "Content-Type": "application/json"}


def _order(order_id: str, size: int) -> bytes:
    """A body of exactly so many bytes: as many lines and charges as an order may have, with the longest
    names; what is then left, spaces that JSON allows."""
    lines = [{"sku": LONGEST_SKU, "quantity": 1, "unit_price": "1.00"}] * MAX_LINES
    charges = [{"code": LONGEST_CODE, "amount": "0.01"}] * MAX_LINES
    body = {"order_id": order_id, "country": "France", "currency": "EUR", "lines": lines, "charges": charges}
    return msgspec.json.encode(body).ljust(size)


def _too_large_for_the_topic(rig: Rig, report: DrillReport) -> None:
    topic = "order.commands"
    bound = replicated()[topic].max_record_bytes
    producer = clients.writer(
        rig.cluster.bootstrap, {"enable.idempotence": False, "message.max.bytes": 2 * bound, "log_level": 0}
    )
    told: list[str] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        told.append(error.name() if error is not None else "written")

    producer.produce(topic, b"x" * (bound + 1), "too-large", on_delivery=delivered)
    producer.flush(ANSWER_SECONDS)
    what, kept = f"a record beyond max.message.bytes={bound}", told == ["MSG_SIZE_TOO_LARGE"]
    report.promise(what, "refused by the broker", ", ".join(told), kept)


def _quota(rig: Rig, report: DrillReport) -> None:
    topic = f"drill.quota-{time.time_ns():x}"
    create_placed(rig.cluster.admin, topic, [BROKERS])
    about = ("--bootstrap-server", rig.cluster.bootstrap, "--alter")
    whom = ("--entity-type", "clients", "--entity-name", CLIENT)
    free = _rate(rig.cluster.bootstrap, topic)
    run_tool(CONFIG, *about, "--add-config", f"producer_byte_rate={QUOTA_BYTES}", *whom)
    time.sleep(2)
    bound = _rate(rig.cluster.bootstrap, topic)
    run_tool(CONFIG, *about, "--delete-config", "producer_byte_rate", *whom)
    delete_topics(rig.cluster.admin, [topic])
    report.figures["bytes a second without a quota"] = free
    report.figures["bytes a second with one"] = bound
    measured, kept = f"{free:,.0f}, then {bound:,.0f} bytes/s", bound < min(2 * QUOTA_BYTES, free)
    report.promise(f"producer_byte_rate={QUOTA_BYTES}", "slowed down, not refused", measured, kept)


def _rate(bootstrap: str, topic: str) -> float:
    records = Numbered(bootstrap, topic, "all", QUOTA_PADDING, **{"client.id": CLIENT, "batch.size": 16_384})
    began = time.monotonic()
    records.write(QUOTA_RECORDS)
    records.flush()
    return len(records.acknowledged) * QUOTA_PADDING / (time.monotonic() - began)


def _said(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.json().get('code', '')}".strip()
