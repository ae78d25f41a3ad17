"""A setting that is wrong is named; what it was set to is not told: it may be a secret."""

import importlib

import pytest
from pydantic import ValidationError


@pytest.mark.parametrize("service", ["order", "inventory"])
def test_a_secret_that_is_too_short_is_not_told(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_HASH_KEY", "too short")
    settings = importlib.import_module(f"services.{service}.settings").ApiSettings
    with pytest.raises(ValidationError, match="hash_key") as refused:
        settings()
    assert "too short" not in str(refused.value)
