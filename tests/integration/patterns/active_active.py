"""Two active sites, for reads near users: each writes its own topics and reads the other's under a prefix.

At away, home's `order.events` is called `home.order.events`, and the other way round. MirrorMaker2 never
copies a topic back that bears its target's name, so nothing goes round. When to do this, and when not to:
docs/explanation/active-active.md.

    python -m tests.integration.patterns.active_active --folder F --port P --home HOST:PORT --away HOST:PORT
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from contracts.topics import TOPICS
from infra.log.topics import Topic, catalogue, create_topics, mirrored_topics
from infra.stack.embedded.child import Program
from infra.stack.embedded.mirror import mirror_program
from infra.stack.mirror_settings import MirrorPlace, cluster_lines, flow_lines, setting_lines
from infra.stack.site import AWAY, HOME
from services.projection.engine.read_model import ReadModel, Row

_POLICY = "replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy\n"


def shared_topics() -> list[str]:
    """What readers at the other site need: the logs of events. Answers are the writer's own."""
    logs = {own.events for own in TOPICS.values()}
    return [name for name in mirrored_topics() if name in logs]


def arriving(peer: str) -> dict[str, Topic]:
    """The catalogue of what comes from `peer`, as the broker that it comes to must have it."""
    wanted = catalogue()
    topics = [replace(wanted[name], name=f"{peer}.{name}") for name in shared_topics()]
    return {topic.name: topic for topic in topics}


def of_both_sites(model: ReadModel[Row], peer: str) -> ReadModel[Row]:
    """The same read model over the site's own log and what comes from `peer`.

    Right only where every entity is written at one site: rows are per entity, and a second writer's event
    forks the stream.
    """
    return replace(model, topics=(*model.topics, *(f"{peer}.{topic}" for topic in model.topics)))


def both_ways_properties(place: MirrorPlace) -> str:
    """MirrorMaker2's configuration: both directions of `place`, exactly once, with prefixes."""
    back = replace(place, source=place.target, target=place.source)
    return cluster_lines(place) + flow_lines(place) + flow_lines(back) + _POLICY + setting_lines(place)


def prepare_both_ways(place: MirrorPlace) -> Program:
    """Make the topics that will arrive at either side, write the configuration, and return what to run.

    Raises KafkaException, or TimeoutError where a broker does not answer.
    """
    create_topics(place.target_bootstrap, arriving(place.source))
    create_topics(place.source_bootstrap, arriving(place.target))
    return mirror_program(place, both_ways_properties(place))


def mirror_both_ways(
    folder: Annotated[Path, typer.Option(help="Configuration.")],
    port: Annotated[int, typer.Option(help="Of MirrorMaker2's own REST, on loopback.")],
    home: Annotated[str, typer.Option(metavar="HOST:PORT", help="Home's broker.")],
    away: Annotated[str, typer.Option(metavar="HOST:PORT", help="Away's broker.")],
    topics: Annotated[list[str] | None, typer.Option("--topic", help="A name or pattern; repeat it.")] = None,
) -> None:
    """Mirror both sites' events to each other, under prefixes."""
    place = MirrorPlace(folder, port, HOME, AWAY, home, away, topics or shared_topics())
    program = prepare_both_ways(place)
    os.execve(program.command[0], program.command, program.environment)


if __name__ == "__main__":
    typer.run(mirror_both_ways)
