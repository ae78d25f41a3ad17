"""A load as people see it: its progress bar, its tables."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from analytics.terminal import Table
from infra.cli.output import notes
from infra.lab.retail.invoices import Unmapped
from infra.lab.retail.load import Pace, load
from infra.lab.retail.plan import LoadPlan
from infra.lab.retail.requests import Api
from infra.lab.retail.sender import ApiResponse
from infra.lab.retail.steps import Place, Step
from infra.lab.retail.tally import KindTally, Tally


def load_with_progress(plan: LoadPlan, urls: Mapping[Api, str], pace: Pace) -> Tally:
    """Send the load under a progress bar that counts commands and order lines. Raises NoResponse."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes) as progress:
        bar = progress.add_task("commands", total=sum(1 for _ in plan.steps()))
        lines = progress.add_task("order lines settled", total=plan.order_lines)

        def answered(step: Step, _answer: ApiResponse) -> None:
            progress.advance(bar)
            if isinstance(step, Place):
                progress.advance(lines, len(step.lines))

        return asyncio.run(load(plan, urls, pace, answered))


def commands_table(tally: Tally) -> Table:
    """Answers by kind of command, with their times."""
    table = Table(
        "command", title=f"{tally.total().commands:,} commands in {tally.seconds:.1f} s", title_justify="left"
    )
    for name in ("sent", "acknowledged", "refused", "replayed", "repeated", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for kind in tally.kinds():
        table.add_row(*_cells(kind))
    table.add_section()
    table.add_row(*_cells(tally.total()))
    return table


def figures(tally: Tally) -> str:
    """Throughput in one line."""
    lines = f"{tally.order_lines:,} order lines settled, {tally.lines_per_second:,.0f} per second"
    return f"{lines}; {tally.commands_per_second:,.0f} commands a second"


def refusals(refused: Mapping[str, int]) -> str:
    """Refusals by reason in one line."""
    return ", ".join(f"{count} {code}" for code, count in sorted(refused.items())) or "none"


def unmapped_table(unmapped: Iterable[Unmapped]) -> Table:
    """What the data holds and the shop has no command for, by reason, each with an invoice to look at."""
    table = Table("not mapped", title_justify="left")
    for name in ("lines", "invoices", "value"):
        table.add_column(name, justify="right")
    table.add_column("for example")
    lines: Counter[str] = Counter()
    value: Counter[str] = Counter()
    invoices: dict[str, list[str]] = {}
    for gap in unmapped:
        lines[gap.reason] += gap.lines
        value[gap.reason] += gap.value
        invoices.setdefault(gap.reason, []).append(gap.invoice)
    for reason, count in lines.most_common():
        numbers = invoices[reason]
        money = f"£{value[reason] / 1e6:,.2f}"
        table.add_row(reason, f"{count:,}", f"{len(set(numbers)):,}", money, numbers[0])
    return table


def _cells(kind: KindTally) -> list[str]:
    counts = (kind.commands, kind.acknowledged, kind.refused, kind.replayed, kind.repeated)
    times = (f"{1000 * kind.p50:.1f}", f"{1000 * kind.p99:.1f}")
    return [kind.kind, *(f"{count:,}" for count in counts), *times]
