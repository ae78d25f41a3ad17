"""Two real brokers for all patterns."""

from collections.abc import Iterator

import pytest

from tests.stack import site_broker


@pytest.fixture(scope="package")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of home's broker and of away's."""
    folder = tmp_path_factory.mktemp("patterns")
    with site_broker(folder / "home") as home, site_broker(folder / "away") as away:
        yield home, away
