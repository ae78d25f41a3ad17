"""What all end-to-end tests together show of a secured shop: it runs after them, in the same shop.

Every right of Kafka that they should use was used, nothing was denied that the shop needs, and no secret is anywhere
but in its own file.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from contracts.topics import TOPICS
from infra.base.waiting import wait_until
from infra.log.parked import Parked, parked_commands
from services.kernel.log import clients
from tests.authorizer import Decisions, unused
from tests.e2e.shop import SECONDS, Shop
from tests.leaks import leaks

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SETTLED_SECONDS = 2.0
# Who may write what no worker can read into each input.
WRITERS = {
    "order.commands": "order-api",
    "order.inbox": "order-worker",
    "inventory.commands": "inventory-api",
    "inventory.inbox": "inventory-worker",
}


@pytest.fixture(scope="module")
def after_all(request: pytest.FixtureRequest) -> None:
    """Skips where only some of the other tests have run."""
    here = Path(__file__)
    others = {file.stem for file in here.parent.glob("test_*.py")}
    if others - {item.path.stem for item in request.session.items if item.path.parent == here.parent}:
        pytest.skip("it judges what all end-to-end tests have done")


def parked_from(shop: Shop, topic: str) -> list[Parked]:
    return [parked for parked in parked_commands(shop.settings.kafka) if parked.command.topic == topic]


def test_an_operator_decides_on_parked_commands_of_every_input(shop: Shop) -> None:
    assert {*WRITERS} == {topic for topics in TOPICS.values() for topic in topics.inputs}
    for topic, writer in WRITERS.items():
        producer = clients.writer(shop.settings.kafka_as(writer))
        producer.produce(topic, b"not Avro", b"parked-by-a-test", partition=0)
        assert producer.flush(30) == 0
    for topic in WRITERS:
        (parked,) = wait_until(partial(parked_from, shop, topic), f"{topic} parks it", SECONDS)
        assert parked.position in shop.run("parked", "list")
        assert "was sent again" in shop.run("parked", "retry", parked.position)
        (again,) = wait_until(partial(parked_from, shop, topic), f"{topic} parks it again", SECONDS)
        assert again.position != parked.position
        assert "was skipped" in shop.run("parked", "skip", again.position, "--why", "a test")
        assert parked_from(shop, topic) == []
    assert "Nothing is parked" in shop.run("parked", "list")


def test_operators_see_every_act(shop: Shop) -> None:
    assert "parked skip" in shop.run("journal")
    assert "Traceback" not in shop.run("streams", "list")
    assert "order-worker" in shop.run("status")


@pytest.mark.usefixtures("after_all")
def test_every_right_was_used_and_nothing_was_denied(decisions: Decisions) -> None:
    # what it wrote last is read by another thread
    time.sleep(SETTLED_SECONDS)
    assert unused("e2e", decisions.used) == []
    assert decisions.denied_to() == []


def test_no_secret_is_in_logs_outputs_and_command_lines(shop: Shop) -> None:
    shop.observe("journal", shop.run("journal"))
    assert len(shop.secrets) > 20
    print(f"{len(shop.secrets)} secrets, {len(shop.outputs)} outputs")
    # `env` prints what a shell needs: the address of the database with a password, and a token
    outputs = [(command, output) for command, output in shop.outputs if command != "env"]
    assert leaks(shop.secrets, shop.settings.home, outputs) == []
