"""The folders that `tests/distribution.py` names exist, and it groups and orders modules as intended."""

from tests.architecture.test_shape import ROOT
from tests.distribution import GROUPS, LONGEST_FIRST, group, rank
from tests.ports import free_base


def test_every_folder_that_is_named_exists() -> None:
    assert [folder for folder in (*GROUPS, *LONGEST_FIRST) if not (ROOT / folder).is_dir()] == []


def test_modules_that_share_something_stay_together() -> None:
    shared = {group("tests/e2e/test_demo.py::test_a"), group("tests/e2e/test_notebooks.py::test_b[x::y]")}
    assert shared == {"tests/e2e/"}
    assert group("tests/unit/order/test_law.py::Class::test_a") == "tests/unit/order/test_law.py"


def test_the_longest_come_first() -> None:
    modules = [
        "tests/unit/order/test_law.py",
        "tests/integration/api/test_responses.py",
        "tests/e2e/test_demo.py",
    ]
    assert sorted(modules, key=rank) == modules[::-1]


def test_a_range_of_ports_is_given_once() -> None:
    assert len({free_base() for _ in range(3)}) == 3
