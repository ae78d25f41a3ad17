"""The commands of the README's first walk have the results that it states."""

import re

import pytest

from tests.e2e.shop import Shop
from tests.pages import check, run_walk, walk


@pytest.mark.timeout(600)
def test_the_walk(shop: Shop) -> None:
    steps = walk("README.md")
    # Every step is repeatable: each call runs all previous ones again.
    runs = [check(run_walk(steps[:count], shop.environment))[-1] for count in range(1, len(steps) + 1)]
    assert [re.findall(r'"status": ?"(\w+)"', run.output)[-1:] for run in runs] == [
        [],
        ["stocked"],
        ["confirmed"],
        ["shipped"],
    ]
