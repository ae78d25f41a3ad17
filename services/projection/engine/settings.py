"""What the environment says. Every variable begins with DAYBOOK_."""

from __future__ import annotations

import os

from pydantic_settings import BaseSettings, SettingsConfigDict

# A folder of files, each named as a variable and read where that is not set: how containers get secrets.
SECRETS = os.environ.get("DAYBOOK_SECRETS")


class ReadSettings(BaseSettings):
    """Shared by the projection and the query API; times are seconds."""

    model_config = SettingsConfigDict(
        env_prefix="DAYBOOK_", frozen=True, secrets_dir=SECRETS, hide_input_in_errors=True
    )

    kafka: str = "127.0.0.1:27492"
    database_url: str = "postgresql://daybook@127.0.0.1:27432/daybook"
    site: str = "home"
    http_host: str = "127.0.0.1"
    log_level: str = "INFO"


class ProjectionSettings(ReadSettings):
    http_port: int = 27413
    projection_group: str = "daybook-projection"
    # a name that no other process of the group has, and that stays over restarts; empty: none
    projection_instance: str = ""
    batch_events: int = 1000
    fetch_wait_seconds: float = 0.05
    session_seconds: float = 10
    stall_seconds: float = 30
    max_parked_keys: int = 100


class QuerySettings(ReadSettings):
    http_port: int = 27403
    database_connections: int = 10
    wait_seconds: float = 2
    max_wait_seconds: float = 30
    stuck_seconds: float = 300
