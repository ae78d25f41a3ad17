"""`daybook rotate`: new passwords for Kafka's users, while the shop runs."""

import typer
from confluent_kafka import KafkaException

from infra.cli.acts import Why, recorded
from infra.cli.inspect import running_settings
from infra.cli.output import fail, notes
from infra.stack.embedded.rotation import rotate

app = typer.Typer()


@app.command("rotate")
def rotate_command(why: Why = "") -> None:
    """Give every user of Kafka a new password and the brokers a new certificate, and restart the processes in turn.

    Every site must run. No command is lost: requests to a process that restarts fail, and are repeated with their key.
    After an interruption run the same command again.
    """
    settings = running_settings()
    if settings.stack == "compose":
        fail("not for containers yet: `docs/security.md` says under Not yet how a password is replaced there")
    try:
        with recorded("rotate", "kafka", why), notes.status("") as status:
            restarted = rotate(settings, status.update)
    except (KafkaException, TimeoutError, OSError) as reason:
        fail(f"{reason}; the same command continues where this one stopped")
    notes.print(f"New passwords, and new certificates of brokers. Restarted: {', '.join(restarted)}.")
