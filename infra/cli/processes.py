"""`daybook scale` and `rotate`: other numbers of processes, and new passwords for them, while the shop runs."""

from typing import Annotated

import typer

from infra.cli.acts import Why, continued
from infra.cli.inspect import running_settings
from infra.cli.output import fail, notes, results
from infra.dr.scale import SCALABLE, scale
from infra.stack.embedded.rotation import rotate
from infra.stack.shop import WORKERS

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
    with continued("scale", f"{process} {number}", why, settings.kafka) as show:
        names = scale(settings, process, number, show)
    for name in names:
        results.print(f"{name}={settings.url(name)}")
    notes.print(f"{process}: {len(names)} from now on. `./daybook status` shows them.")


@app.command("rotate")
def rotate_command(why: Why = "") -> None:
    """Give every user of Kafka a new password and the brokers a new certificate, and restart the processes in turn.

    Every site must run. No command is lost: requests to a process that restarts fail, and are repeated with their key.
    After an interruption run the same command again.
    """
    settings = running_settings()
    if settings.stack == "compose":
        fail("not for containers yet: `docs/security.md` says under Not yet how a password is replaced there")
    with continued("rotate", "kafka", why) as show:
        restarted = rotate(settings, show)
    notes.print(f"New passwords, and new certificates of brokers. Restarted: {', '.join(restarted)}.")
