"""An error of the settings names the setting and does not show its value: it may be a secret."""

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from services.edge.settings import ApiSettings
from services.order.api import OrderApiSettings


@pytest.mark.parametrize("settings", [OrderApiSettings, ApiSettings])
def test_an_invalid_secret_is_not_shown(
    settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_HASH_KEY", "too short")
    with pytest.raises(ValidationError, match="hash_key") as refused:
        settings()
    assert "too short" not in str(refused.value)
