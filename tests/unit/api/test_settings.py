"""An error of the settings names the setting and does not show its value: it may be a secret."""

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from services.edge.settings import ApiSettings
from services.order.api import OrderApiSettings


# BLAKE2b takes at most 64 bytes: with a longer key every write would fail.
@pytest.mark.parametrize("key", ["too short", "0123456789abcdef" * 5])
@pytest.mark.parametrize("settings", [OrderApiSettings, ApiSettings])
def test_an_invalid_secret_is_not_shown(
    settings: type[BaseSettings], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_HASH_KEY", key)
    with pytest.raises(ValidationError, match="hash_key") as refused:
        settings()
    assert key not in str(refused.value)
