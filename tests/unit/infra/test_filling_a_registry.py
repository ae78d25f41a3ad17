"""A registry numbers what it has not seen: the order of filling gives it the lock's ids."""

from itertools import count

from contracts.lock import load_lock
from infra.stack.compose.fill_registry import in_order


def test_a_registry_that_counts_comes_to_the_ids_of_the_lock() -> None:
    lock = load_lock()
    given: dict[str, int] = {}
    numbers = count(1)
    for entry in in_order(lock):
        # a further subject of a known schema costs a number too
        number = next(numbers)
        given.setdefault(lock.text(entry.id), number)
        assert given[lock.text(entry.id)] == entry.id


def test_every_version_goes_in_once_and_none_before_its_predecessor() -> None:
    lock = load_lock()
    ordered = in_order(lock)
    assert sorted(ordered, key=lambda e: (e.subject, e.version)) == sorted(
        lock.entries, key=lambda e: (e.subject, e.version)
    )
    for subject in lock.subjects():
        versions = [entry.version for entry in ordered if entry.subject == subject]
        assert versions == sorted(versions)
