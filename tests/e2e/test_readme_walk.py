"""The commands of the README's first walk have the results that it states."""

import re

import pytest

from tests.e2e.shop import Shop
from tests.pages import check, run_walk, walk

pytestmark = pytest.mark.long


@pytest.mark.timeout(600)
def test_the_walk(shop: Shop) -> None:
    steps = walk("README.md")
    for _ in ("for the first time", "every step is repeatable"):
        runs = check(run_walk(steps, shop.environment))
        for run in runs:
            shop.observe(run.step.command, run.output)
        assert [re.findall(r'"status": ?"(\w+)"', run.output)[-1:] for run in runs] == [
            [],
            ["stocked"],
            ["confirmed"],
            ["shipped"],
        ]
