"""Kafka Connect's files agree with the catalogue, with each other, and with what the HTTP APIs take."""

import re
from typing import Any

import pytest

from infra.base.settings import ROOT
from infra.log.topics import catalogue
from infra.stack.compose.connectors import first_line, read_connectors
from infra.stack.compose.secret_files import AUTHORITY, RUN_SECRETS
from infra.stack.embedded.java import LOCK, read_lock
from services.edge.requests import ID_PATTERN
from tests.unit.infra.test_compose_files import properties, services

CONNECT = ROOT / "infra" / "connect"
HEADER = "sku,supplier,price,currency"


def connectors() -> dict[str, Any]:
    return {**read_connectors(CONNECT / "distributed"), **read_connectors(CONNECT / "standalone")}


def price_pattern() -> str:
    pattern: str = connectors()["supplier-prices"]["transforms.parse.pattern"]
    return pattern


def test_every_topic_is_of_the_catalogue() -> None:
    topics = catalogue()
    distributed = properties(CONNECT / "distributed.properties")
    internal = {value for name, value in distributed.items() if name.endswith(".storage.topic")}
    assert internal == {name for name in topics if name.startswith("connect.")}
    assert all(topics[name].cleanup == "compact" for name in internal)
    assert topics[distributed["config.storage.topic"]].partitions == 1
    prices, orders = connectors()["supplier-prices"], connectors()["settled-orders"]
    target = re.search(r"\? '(\S+)' : null$", prices["transforms.sort.topic.expression"])
    assert target is not None
    assert {prices["topic"], target[1], *orders["topics"].split(",")} <= set(topics)
    assert re.fullmatch(prices["predicates.is-price.pattern"], target[1])


def test_a_line_is_sorted_and_taken_apart_by_the_same_pattern() -> None:
    expression = connectors()["supplier-prices"]["transforms.sort.topic.expression"]
    assert expression.startswith(f"value ==~ /{price_pattern()}/ ?")
    # what may be a SKU here may be one there
    assert price_pattern().count(ID_PATTERN.strip("^$")) == 2


@pytest.mark.parametrize(
    "row",
    ["85123A,acme,1.15,GBP", "gift_0001_10,a,0,EUR", "22423,acme,999999999.000001,GBP", "1,a,0.5,GBP"],
)
def test_a_price(row: str) -> None:
    match = re.fullmatch(price_pattern().replace("(?<", "(?P<"), f"some-list|2|{row}|")
    assert match is not None
    sku, supplier, price, currency = row.split(",")
    assert match.groupdict() == {
        "list": "some-list",
        "line": "2",
        "sku": sku,
        "supplier": supplier,
        "price": price,
        "currency": currency,
    }


@pytest.mark.parametrize(
    "row",
    [
        "85123A,acme,twelve,GBP",
        "85123A,acme,1.1234567,GBP",
        "85123A,acme,-1,GBP",
        "85123A,acme,01.15,GBP",
        "85123A,acme,1.15,gbp",
        "85123A,acme,1.15",
        "85123A,acme,1.15,GBP,more",
        ",acme,1.15,GBP",
        "85 123A,acme,1.15,GBP",
        "85123A,acme,1.15,GBP|",
    ],
)
def test_no_price(row: str) -> None:
    assert not re.fullmatch(price_pattern().replace("(?<", "(?P<"), f"some-list|2|{row}|")


def test_a_line_that_was_cut_off_is_no_price() -> None:
    whole = "some-list|2|85123A,acme,1.15,GBP|"
    assert not any(
        re.fullmatch(price_pattern().replace("(?<", "(?P<"), whole[:end]) for end in range(len(whole))
    )


def test_no_connector_has_a_secret_in_it() -> None:
    for config in connectors().values():
        for name, value in config.items():
            secret = "password" in name or "Authorization" in name
            assert not secret or re.fullmatch(r"(Bearer )?\$\{secrets:/run/secrets:\w+\}", value)


def test_a_connector_trusts_no_database_without_a_certificate() -> None:
    (url,) = [config["connection.url"] for config in connectors().values() if "connection.url" in config]
    assert url.endswith(f"?sslmode=verify-full&sslrootcert={RUN_SECRETS / AUTHORITY}")


def test_a_connector_stops_at_what_it_cannot_read_and_files_are_named_as_connectors() -> None:
    for config in connectors().values():
        assert config["errors.tolerance"] == "none"
    files = [*CONNECT.glob("distributed/*.json"), *CONNECT.glob("standalone/*.json")]
    assert {file.stem for file in files} == set(connectors())
    (command,) = [
        service["command"]
        for service in services("connect.yml").values()
        if "standalone" in service["command"]
    ]
    assert [file.rpartition("/")[2] for file in command[2:]] == [
        file.name for file in sorted(CONNECT.glob("standalone/*.json"))
    ]


def test_every_set_of_plugins_is_in_the_image() -> None:
    fetched = re.search(r"for set in ([a-z ]+);", (ROOT / "Dockerfile").read_text())
    assert fetched is not None
    locked = {name for name in read_lock(LOCK.read_text()) if name.startswith("connect-")}
    assert {f"connect-{name}" for name in fetched[1].split()} == locked


def test_of_a_failure_the_last_cause_is_told() -> None:
    trace = "ConnectException: no\n\tat here\nCaused by: A: first\n\tat there\nCaused by: B: last\n\tat last"
    assert first_line([trace]) == "Caused by: B: last"
    assert first_line(["only this"]) == "only this"
    assert first_line([""]) == "no reason given"


def test_the_example_is_a_list_of_prices() -> None:
    header, *rows = (CONNECT / "example-prices.csv").read_text().splitlines()
    assert header == HEADER
    pattern = price_pattern().replace("(?<", "(?P<")
    assert rows
    assert all(re.fullmatch(pattern, f"example|2|{row}|") for row in rows)
