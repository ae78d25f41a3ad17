"""The export of losses for customer care: nothing is cut, the CSV reads back, and the totals are exact."""

from __future__ import annotations

import csv
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.terminal import Console
from infra.cli.losses import _table
from infra.dr.effects import Again
from infra.dr.export import COLUMNS, csv_lines, totals, with_customers
from infra.dr.losses import Loss, LostRecord, Report
from infra.dr.reconcile import ReconStanding
from services.edge.requests import decimal_text

AT = "2026-11-23T10:11:12.123456Z"
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20)


def loss(number: int, subject: str, **changes: Any) -> Loss:
    command_id = f"01980000-0000-7000-8000-{number:012d}"
    event = LostRecord(f"e-{number}", "daybook.order.OrderPlaced", "order.events", 0, number, 1, AT)
    fields: dict[str, Any] = {
        "command_id": command_id,
        "command_type": "daybook.order.PlaceOrder",
        "subject": subject,
        "service": "order",
        "outcome": "accepted",
        "code": "",
        "acknowledged": True,
        "epoch": 1,
        "at": AT,
        "version": 0,
        "amounts": {},
        "events": (event,),
        "request": None,
        "again": None,
    }
    return Loss(**{**fields, **changes})


def report_of(*losses: Loss) -> Report:
    return Report("home", "away", AT, losses, (), (), (), {})


def rows(*losses: Loss) -> list[dict[str, str]]:
    return list(csv.DictReader(csv_lines(ReconStanding(entry, "open") for entry in losses)))


def test_the_csv_reads_back() -> None:
    amounts: dict[str, int | str] = {"gross": 12_345_678, "units": 3, "currency": "EUR"}
    placed = loss(1, "o-1", amounts=amounts, customer_id="c,1", again=Again("accepted", 1, "e-9"))
    refused = loss(2, "o-2", outcome="refused", code="not_due", events=(), repeat="refused: already_expired")
    first, second = rows(placed, refused)
    assert tuple(first) == COLUMNS
    assert first["command_id"] == placed.command_id and first["at"] == AT
    assert (first["gross"], first["currency"], first["units"], first["refund"]) == (
        "12.345678",
        "EUR",
        "3",
        "",
    )
    assert (first["customer_id"], first["again"], first["state"]) == ("c,1", "accepted", "open")
    assert first["event_ids"] == "e-1"
    assert (second["outcome"], second["code"], second["repeat_now"]) == (
        "refused",
        "not_due",
        "refused: already_expired",
    )


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_any_text_reads_back(subjects: list[str]) -> None:
    losses = [loss(number, subject, customer_id=subject) for number, subject in enumerate(subjects)]
    read = rows(*losses)
    assert [row["entity"] for row in read] == [row["customer_id"] for row in read] == subjects


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_money_is_exact(micros: int) -> None:
    assert Decimal(decimal_text(micros)) == Decimal(micros) / 1_000_000
    assert 2 <= len(decimal_text(micros).partition(".")[2]) <= 6


def test_totals_are_by_currency_and_count_each_customer_once() -> None:
    report = report_of(
        loss(1, "o-1", amounts={"gross": 1_500_000, "currency": "EUR"}, customer_id="c-1"),
        loss(2, "o-2", amounts={"gross": 2_000_001, "currency": "EUR"}, customer_id="c-1"),
        loss(3, "o-3", amounts={"gross": 7_000_000, "currency": "GBP"}),
        loss(4, "o-4", amounts={"refund": 500_000, "currency": "EUR"}),
        loss(5, "tea", service="inventory", amounts={"quantity": 5}),
        loss(6, "o-6", outcome="refused", events=(), customer_id="c-6"),
        loss(7, "o-7", acknowledged=False, amounts={"gross": 9, "currency": "EUR"}),
    )
    sums = totals(with_customers(report, {"o-4": "c-2", "o-1": "ignored"}))
    assert (sums.commands, sums.orders, sums.customers, sums.orders_of_guests) == (5, 4, 2, 1)
    assert sums.money == {"gross EUR": "3.500001", "gross GBP": "7.00", "refund EUR": "0.50"}


@pytest.mark.parametrize("width", [60, 140, 160, 180, 250])
def test_ids_and_times_are_whole_in_the_table(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    subject = "order-" + "x" * 40
    Console(width=width).print(_table([ReconStanding(loss(1, subject), "open")]))
    printed = capsys.readouterr().out
    assert all(text in printed for text in (loss(1, subject).command_id, subject, AT))
