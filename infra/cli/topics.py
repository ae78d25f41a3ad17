"""`daybook topics`: the catalogue, whether the broker agrees with it, and more partitions for a service."""

from typing import Annotated, Literal

import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table
from infra.cli.acts import Why, continued, recorded
from infra.cli.inspect import Kafka, broker_at, running_settings
from infra.cli.output import fail, notes, results
from infra.dr.inputs import close, switch
from infra.dr.repartition import repartition_shop
from infra.log.topics import SERVICES, catalogue, drift
from services.kernel.log.control import read_control

app = typer.Typer(invoke_without_command=True)


@app.callback()
def topics(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Compare with the running broker instead.")] = False,
) -> None:
    """Show the catalogue of topics; with --check, list where the broker differs from it (exit code 1)."""
    if context.invoked_subcommand:
        return
    if not check:
        _show_catalogue()
        return
    settings = running_settings()
    broker_at("")
    differences = drift(settings.kafka, catalogue(settings.brokers))
    for difference in differences:
        results.print(difference)
    if differences:
        raise typer.Exit(1)
    notes.print("The broker's topics are those of the catalogue.")


@app.command("repartition")
def repartition(
    service: Annotated[str, typer.Argument(help="order or inventory.")],
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    why: Why = "",
) -> None:
    """Give a service's topics more partitions and keep every key's order. Orders are refused meanwhile."""
    if service not in SERVICES:
        fail(f"there is no service {service}: {' or '.join(SERVICES)}")
    settings = running_settings()
    broker_at("")
    if not yes:
        typer.confirm("The shop stops until its log is copied. Continue?", abort=True)
    with continued("topics repartition", f"{service} {partitions}", why, settings.kafka) as show:
        moved = repartition_shop(settings, service, partitions, catalogue(settings.brokers), show)
    for topic in moved:
        text = f"{topic.topic}: {topic.records:,} records of {topic.keys:,} keys in {topic.partitions} partitions"
        results.print(text)
    notes.print(f"Now write `partitions: {partitions}` into contracts/topics.yaml, for the next new cluster.")


@app.command("inputs")
def move_inputs(
    step: Annotated[
        Literal["switch", "close"] | None, typer.Argument(help="What to do; without it, show the phase.")
    ] = None,
    kafka: Kafka = "",
    why: Why = "",
) -> None:
    """Move the workers of a running shop from the command topics to the inbox, in two steps.

    `switch`: workers write to the inbox from now on. `close`: what workers wrote to the command topics is
    parked from now on. Each step is refused while it is too early; neither can be undone.
    """
    broker = broker_at(kafka)
    try:
        if step is not None:
            with recorded("topics inputs", step, why, broker):
                {"switch": switch, "close": close}[step](broker)
        results.print(read_control(broker).phase)
    except (KafkaException, TimeoutError) as reason:
        fail(f"the broker at {broker} does not respond: {reason}")


def _show_catalogue() -> None:
    topics = catalogue().values()
    rows = ((topic.name, topic.key, str(topic.partitions), topic.cleanup, topic.about) for topic in topics)
    results.print(Table("topic", "key", "partitions", "cleanup", "about", rows=rows))
