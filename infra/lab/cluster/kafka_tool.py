"""Kafka's own command-line programs, from the broker's jars: what an operator of a cluster types."""

from __future__ import annotations

import subprocess

from infra.base.errors import DaybookError
from infra.lab.cluster.node import clean_environment
from infra.stack.embedded.jars import classpath
from infra.stack.embedded.java import find_java

TOOL_SECONDS = 180.0


class ToolFailed(DaybookError):
    """A program of Kafka's ended with an error; the text is what it said."""


def run_tool(main: str, *arguments: str, seconds: float = TOOL_SECONDS) -> str:
    """What the Java class `main` prints. Raises ToolFailed."""
    # It lives for seconds: code that is quick to compile halves them.
    java = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    command = [*java, "-cp", classpath("kafka"), main, *arguments]
    try:
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as slow:
        raise ToolFailed(f"{main.rpartition('.')[2]} took longer than {seconds:.0f} s") from slow
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise ToolFailed(f"{main.rpartition('.')[2]} ended with {done.returncode}:\n{said}")
    return done.stdout
