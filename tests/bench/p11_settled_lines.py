"""P11: settled order lines a second over the real input: placed over HTTP, every SKU reserved, confirmed."""

from __future__ import annotations

import asyncio
from datetime import date

from infra.lab.load.clients import Api, Urls
from infra.lab.retail.invoices import entries, read_rows
from infra.lab.retail.load import load
from infra.lab.retail.plan import Period, read_book
from infra.lab.retail.steps import Place, Step
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.bench.rig import Cores, Rig
from tests.bench.whole import await_rest, start_shop

FIRST, LAST, QUICK_LAST = date(2010, 12, 1), date(2011, 8, 31), date(2010, 12, 31)
CONCURRENCY = 64


def run(effort: Effort, say: Say) -> list[Measured]:
    """Once: nine months (`--quick`: one). Every core's use is beside it, to say what limits."""
    last = QUICK_LAST if effort.quick else LAST
    say("reading the invoices")
    book = read_book(entries(read_rows()))
    plan = book.load(Period(FIRST, last, FIRST))
    with Rig() as rig:
        start_shop(rig, stocked=False)
        urls = Urls({api: rig.parts[f"{api}-api"].url for api in Api})
        done = 0

        def settled(step: Step, _: object) -> None:
            nonlocal done
            if isinstance(step, Place):
                before, done = done, done + len(step.lines)
                if done // 20_000 > before // 20_000:
                    say(f"{done:,} of {plan.order_lines:,} lines")

        cores = Cores(rig)
        tally = asyncio.run(load(plan, urls, CONCURRENCY, None, settled))
        busy = {name: used for name, used in cores.taken().items() if used >= 0.02}
        if set(tally.refused) - {"order_rejected"} and not tally.statuses["confirmed"]:
            raise Unmeasurable(f"refused: {dict(tally.refused)}")
        rest = await_rest(rig, 600)
    orders = next(kind for kind in tally.kinds() if kind.kind == "order")
    seen = {"p50": 1000 * orders.p50, "p99": 1000 * orders.p99, "catch-up s": rest, **busy}
    row = Measured(
        f"{FIRST:%Y-%m} to {last:%Y-%m}, {plan.order_lines:,} lines",
        "lines/s",
        {"daybook": [Window(tally.lines_per_second, seen)]},
    )
    row.reach("≥1,500/s", tally.lines_per_second, 1500)
    row.notes.append(f"orders: {dict(tally.statuses)}; {tally.commands_per_second:,.0f} commands/s in all")
    busiest = max(busy, key=lambda name: busy[name])
    row.notes.append(
        f"the busiest is {busiest.removeprefix('cpu ')} with {busy[busiest]:.2f} cores; "
        f"all that is listed takes {sum(busy.values()):.2f}, the loader not counted"
    )
    return [row]
