"""`daybook scale`: more or fewer processes of one kind, while the shop runs."""

from typing import Annotated

import typer
from confluent_kafka import KafkaException

from infra.cli.acts import Why, recorded
from infra.cli.inspect import running_settings
from infra.cli.output import fail, notes, results
from infra.dr.scale import SCALABLE, scale
from infra.stack.shop import WORKERS
from services.kernel.log.transactions import OwnershipLost

app = typer.Typer()


@app.command("scale")
def scale_command(
    process: Annotated[str, typer.Argument(help=f"One of {', '.join(SCALABLE)}.")],
    count: Annotated[int | None, typer.Argument(min=1, help="How many from now on.", metavar="N")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="The same, for order and inventory.")] = None,
    why: Why = "",
) -> None:
    """Run N slots of order or inventory, or N processes of an API or the projection. No command is lost.

    The number stays over `./daybook down` and `up`. After an interruption run the same command again.
    """
    if process not in SCALABLE:
        fail(f"there is no process {process} to scale: {', '.join(SCALABLE)}", 2)
    if slots is not None and process not in WORKERS:
        fail(f"{process} has no slots: `./daybook scale {process} {slots}`", 2)
    number = slots if count is None else count
    if number is None or None not in (slots, count):
        fail(f"say how many, once: `./daybook scale {process} 2`", 2)
    settings = running_settings()
    try:
        with recorded("scale", f"{process} {number}", why, settings.kafka), notes.status("") as status:
            names = scale(settings, process, number, status.update)
    except (KafkaException, OwnershipLost, TimeoutError, OSError) as reason:
        fail(f"{reason}; the same command continues where this one stopped")
    for name in names:
        results.print(f"{name}={settings.url(name)}")
    notes.print(f"{process}: {len(names)} from now on. `./daybook status` shows them.")
