"""Two real brokers for all patterns."""

from collections.abc import Iterator

import pytest

from tests.integration.sites.conftest import running_broker


@pytest.fixture(scope="package")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of home's broker and of away's."""
    folder = tmp_path_factory.mktemp("patterns")
    with running_broker(folder / "home") as home, running_broker(folder / "away") as away:
        yield home.bootstrap, away.bootstrap
