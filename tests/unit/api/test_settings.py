"""A setting that is wrong is named; what it was set to is not told: it may be a secret."""

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from services.edge.settings import ApiSettings
from services.order.settings import OrderApiSettings


@pytest.mark.parametrize("settings", [OrderApiSettings, ApiSettings])
def test_a_secret_that_is_too_short_is_not_told(
    settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_HASH_KEY", "too short")
    with pytest.raises(ValidationError, match="hash_key") as refused:
        settings()
    assert "too short" not in str(refused.value)
