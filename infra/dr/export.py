"""A report of losses for customer care: totals, and one line of CSV for each command that clients had a response to."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from infra.dr.losses import FIGURES, Loss, Report
from infra.dr.reconcile import ReconStanding
from services.edge.requests import decimal_text

MONEY = ("gross", "refund")
COLUMNS = (
    *("command_id", "command", "service", "entity", "customer_id", "outcome", "code", "at", "state"),
    *(*FIGURES, "currency", "event_ids", "again", "repeat_now"),
)


@dataclass(frozen=True)
class LossTotals:
    """What acknowledged losses amount to. `money` is by `gross EUR`, in units of the currency as decimal text.

    `customers` are different ones; `orders_of_guests` have none, or their customer is not known.
    """

    commands: int
    orders: int
    customers: int
    orders_of_guests: int
    money: dict[str, str]


def totals(report: Report) -> LossTotals:
    """The totals of all accepted commands that were lost. Refusals moved nothing."""
    lost = [loss for loss in report.acknowledged if loss.events]
    orders = {loss.subject: loss.customer_id for loss in lost if loss.service == "order"}
    sums: dict[str, int] = {}
    for loss in lost:
        for name in MONEY:
            if name in loss.amounts:
                sort = f"{name} {loss.amounts.get('currency', '')}".rstrip()
                sums[sort] = sums.get(sort, 0) + int(loss.amounts[name])
    customers, guests = len(set(orders.values()) - {""}), sum(not name for name in orders.values())
    amounts = {sort: decimal_text(micros) for sort, micros in sorted(sums.items())}
    return LossTotals(len(lost), len(orders), customers, guests, amounts)


def with_customers(report: Report, customers: Mapping[str, str]) -> Report:
    """The report with the customer of each order: of its lost placement, else of `customers`, by order id."""
    placed = {loss.subject: loss.customer_id for loss in report.losses if loss.customer_id}
    by_order = {**customers, **placed}
    losses = (
        replace(loss, customer_id=by_order.get(loss.subject, "")) if loss.service == "order" else loss
        for loss in report.losses
    )
    return replace(report, losses=tuple(losses))


def csv_lines(entries: Iterable[ReconStanding]) -> Iterator[str]:
    """One line of CSV for each entry, the names of the columns first, without line ends.

    Money is in units of the currency. A value with a line end is one line: `\\n` is written as a space.
    """
    yield _line(COLUMNS)
    for entry in entries:
        loss = entry.loss
        about = (loss.command_id, loss.command_type, loss.service, loss.subject, loss.customer_id)
        outcome = (loss.outcome, loss.code, loss.at, entry.state, *(_figure(loss, name) for name in FIGURES))
        events = " ".join(event.event_id for event in loss.events)
        again = "" if loss.again is None else f"{loss.again.kind} {loss.again.code}".rstrip()
        yield _line((*about, *outcome, str(loss.amounts.get("currency", "")), events, again, loss.repeat))


def money(loss: Loss, name: str) -> str:
    """An amount with its currency, as text; empty where the loss has none of this name."""
    if name not in loss.amounts:
        return ""
    return f"{decimal_text(int(loss.amounts[name]))} {loss.amounts.get('currency', '')}".rstrip()


def _figure(loss: Loss, name: str) -> str:
    if name not in loss.amounts:
        return ""
    return decimal_text(int(loss.amounts[name])) if name in MONEY else str(loss.amounts[name])


def _line(values: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(" ".join(value.splitlines()) for value in values)
    return text.getvalue()
