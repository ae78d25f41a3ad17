"""Two active sites, for reads near users: each writes its own topics and reads the other's under a prefix.

At away, home's `order.events` is called `home.order.events`, and the other way round. MirrorMaker2 never
copies a topic back that has its target's name as prefix, so no record circulates. When to do this, and when not to:
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
from infra.stack.embedded.kafka import prepare_mirror
from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from infra.stack.site import AWAY, HOME
from services.projection.engine.read_model import ReadModel, Row

_BOTH_WAYS = """\
{source}->{target}.enabled = true
{target}->{source}.enabled = true
replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy
"""


def shared_topics() -> list[str]:
    """The topics that readers at the other site need: the logs of events, without recorded outcomes."""
    logs = {own.events for own in TOPICS.values()}
    return [name for name in mirrored_topics() if name in logs]


def arriving(peer: str) -> dict[str, Topic]:
    """The catalogue of the topics that arrive from `peer`, for the broker that receives them."""
    own_topics = catalogue()
    topics = [replace(own_topics[name], name=f"{peer}.{name}") for name in shared_topics()]
    return {topic.name: topic for topic in topics}


def of_both_sites(model: ReadModel[Row], peer: str) -> ReadModel[Row]:
    """The same read model over the site's own log and the one from `peer`.

    Correct only if every entity is written at one site: a second writer's event forks its stream.
    """
    return replace(model, topics=(*model.topics, *(f"{peer}.{topic}" for topic in model.topics)))


def both_ways_properties(mirror: MirrorPlace) -> str:
    """MirrorMaker2's configuration: both directions of `mirror`, exactly once, with prefixes. Where a name is there
    again, its last line counts."""
    back = replace(
        mirror,
        source=mirror.target,
        target=mirror.source,
        source_bootstrap=mirror.target_bootstrap,
        target_bootstrap=mirror.source_bootstrap,
    )
    own = _BOTH_WAYS.format(source=mirror.source, target=mirror.target)
    return mirror_properties(mirror) + mirror_properties(back) + own


def prepare_both_ways(mirror: MirrorPlace) -> Program:
    """Creates the topics that will arrive at both sites and writes the configuration; returns the program.

    Raises KafkaException, or TimeoutError if a broker does not respond.
    """
    create_topics(mirror.target_bootstrap, arriving(mirror.source))
    create_topics(mirror.source_bootstrap, arriving(mirror.target))
    program = prepare_mirror(mirror)
    (mirror.folder / "mirror.properties").write_text(both_ways_properties(mirror))
    return program


def mirror_both_ways(
    folder: Annotated[Path, typer.Option(help="Configuration.")],
    port: Annotated[int, typer.Option(help="Of MirrorMaker2's own REST, on loopback.")],
    home: Annotated[str, typer.Option(metavar="HOST:PORT", help="Home's broker.")],
    away: Annotated[str, typer.Option(metavar="HOST:PORT", help="Away's broker.")],
    topics: Annotated[list[str] | None, typer.Option("--topic", help="A name or pattern; repeat it.")] = None,
) -> None:
    """Mirror both sites' events to each other, under prefixes."""
    mirror = MirrorPlace(folder, port, HOME, AWAY, home, away, topics or shared_topics())
    program = prepare_both_ways(mirror)
    os.execve(program.command[0], program.command, program.environment)


if __name__ == "__main__":
    typer.run(mirror_both_ways)
