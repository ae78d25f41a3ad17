"""The shop's processes as a supervisor starts them, and the topics that they need."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

CATALOGUE = yaml.safe_load(Path("contracts/topics.yaml").read_text())
PATIENCE = 60.0


def create_topics(kafka: str) -> None:
    """The whole catalogue, where it is not there yet."""
    default = CATALOGUE["defaults"]["partitions"]
    wanted = [
        NewTopic(
            name,
            num_partitions=topic.get("partitions", default),
            replication_factor=1,
            config={"cleanup.policy": topic.get("cleanup", "delete")},
        )
        for name, topic in CATALOGUE["topics"].items()
    ]
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics(wanted).values():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def eventually(check: Callable[[], Any], what: str) -> Any:
    """The first truthy result of `check` within `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while not (result := check()):
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.05)
    return result


@contextmanager
def process(
    service: str, part: str, kafka: str, port: int, **settings: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m services.<service>.main <part>`, ready; ended at the end."""
    environment = {
        **os.environ,
        "DAYBOOK_KAFKA": kafka,
        "DAYBOOK_HTTP_PORT": str(port),
        "DAYBOOK_HASH_KEY": "a key for tests alone",
        **{f"DAYBOOK_{name.upper()}": value for name, value in settings.items()},
    }
    started = subprocess.Popen([sys.executable, "-m", f"services.{service}.main", part], env=environment)
    try:
        eventually(lambda: ready(started, port), f"{service} {part} did not become ready")
        yield started
    finally:
        started.terminate()
        started.wait(PATIENCE)


def ready(started: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether the process says that it is ready. Raises where it has ended."""
    if started.poll() is not None:
        raise RuntimeError(f"the process ended with {started.returncode}")
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200
    except httpx.TransportError:
        return False
