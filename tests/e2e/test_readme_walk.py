"""The commands of the README's first walk have the results that it states."""

import re
import subprocess

import pytest

from infra.base.settings import ROOT
from tests.e2e.shop import SECONDS, Shop

WALK = re.compile(r"<!-- walk: begin -->(.*)<!-- walk: end -->", re.DOTALL)
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


@pytest.mark.timeout(600)
def test_the_walk(shop: Shop) -> None:
    walk = WALK.search((ROOT / "README.md").read_text("utf-8"))
    assert walk is not None
    blocks = BLOCK.findall(walk.group(1))
    outputs = [run(shop, blocks[: count + 1]) for count in range(len(blocks))]
    assert [re.findall(r'"status": ?"(\w+)"', output)[-1:] for output in outputs] == [
        [],
        ["stocked"],
        ["confirmed"],
        ["shipped"],
    ]


def run(shop: Shop, blocks: list[str]) -> str:
    """Standard output of these blocks. Every step is repeatable: each call runs all previous blocks again."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join(blocks)],
        cwd=ROOT,
        env=shop.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
