"""The headers of a write."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.edge.problems import Problem
from services.edge.requests import WriteHeaders, expected_version, traceparent
from services.kernel.worker.entities import ANY_VERSION, NO_VERSION, unexpected

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "é", "x" * 256, "a\n"])
def test_an_idempotency_key_has_visible_characters_and_a_limited_length(key: str) -> None:
    with pytest.raises(ValidationError):
        WriteHeaders.model_validate({"Idempotency-Key": key})
    assert WriteHeaders.model_validate({"Idempotency-Key": "x" * 255}).idempotency_key == "x" * 255


@pytest.mark.parametrize("tags", ["3", "", '"3', '"3""4"', '*, "3"', 'w/"3"', '"٣"', '"3"\n'])
def test_if_match_is_a_list_of_entity_tags(tags: str) -> None:
    with pytest.raises(ValidationError):
        WriteHeaders.model_validate({"If-Match": tags})


@pytest.mark.parametrize(
    ("tags", "version"),
    [
        ('"12"', 12),
        ('"0"', 0),
        ("*", ANY_VERSION),
        ('W/"3"', NO_VERSION),
        ('W/"3", "4"', 4),
        ('"4" , "4"', 4),
        ('"-1"', NO_VERSION),
        ('"of-another-kind"', NO_VERSION),
        (f'"{10**18}"', NO_VERSION),
    ],
)
def test_if_match_becomes_an_expected_version(tags: str, version: int) -> None:
    assert expected_version(WriteHeaders.model_validate({"If-Match": tags}).if_match) == version


def test_several_versions_are_refused() -> None:
    with pytest.raises(Problem) as caught:
        expected_version('"3", "4"')
    assert caught.value.extra["field"] == "If-Match"


@pytest.mark.parametrize(
    ("expected", "version", "fits"),
    [(None, 0, True), (3, 3, True), (3, 4, False), (ANY_VERSION, 1, True), (ANY_VERSION, 0, False)]
    + [(NO_VERSION, version, False) for version in (0, 1)],
)
def test_a_worker_checks_the_expected_version(expected: int | None, version: int, fits: bool) -> None:
    assert (unexpected(expected, version) == "") is fits


def test_a_valid_traceparent_is_passed_on() -> None:
    assert traceparent(GOOD) == GOOD
    assert traceparent(None) == ""


@pytest.mark.parametrize(
    "given",
    [
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        f"00-{'0' * 32}-{'0' * 16}-00",
        GOOD.replace("00-", "ff-", 1),
        GOOD.upper(),
        GOOD + "-more",
        GOOD[:-1],
        GOOD.replace("4", "٤"),
    ],
)
def test_an_invalid_traceparent_is_ignored(given: str) -> None:
    assert traceparent(given) == ""
