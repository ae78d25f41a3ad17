"""MirrorMaker2 in dedicated mode, one process: what to run, and whether it copies."""

from __future__ import annotations

import os

from infra.base.ports import listening
from infra.stack.embedded.child import Program
from infra.stack.embedded.jars import classpath
from infra.stack.embedded.java import find_java
from infra.stack.mirror_settings import FRESH_SECONDS, MirrorPlace, canary_age, mirror_properties

_LOGGING = """\
Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDOUT}]}
    Logger:
      # the proof of exactly-once is in this log: ExactlyOnceWorkerSourceTask
      - {name: org.apache.kafka.connect.runtime, level: INFO}
      - {name: org.apache.kafka.connect.mirror, level: INFO}
"""


def prepare_mirror(place: MirrorPlace) -> Program:
    """Write the configuration and return what to run."""
    return mirror_program(place, mirror_properties(place))


def mirror_program(place: MirrorPlace, content: str) -> Program:
    """Write `content` as the configuration and return what to run."""
    place.folder.mkdir(parents=True, exist_ok=True)
    properties, logging = place.folder / "mirror.properties", place.folder / "log4j2.yaml"
    properties.write_text(content)
    logging.write_text(_LOGGING)
    java = (
        str(find_java().executable),
        f"-Dlog4j2.configurationFile={logging.absolute()}",
        f"-Xmx{place.heap_megabytes}m",
        "-XX:+UseSerialGC",
        "-cp",
        classpath("kafka"),
        "org.apache.kafka.connect.mirror.MirrorMaker",
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return Program("mirror", (*java, str(properties.absolute())), environment)


def mirror_ready(place: MirrorPlace) -> bool:
    """True when it runs and a canary that is not old has come through it."""
    return listening(place.port) and canary_age(place.target_bootstrap) < FRESH_SECONDS
