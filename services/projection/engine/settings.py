"""Settings from the environment. Every variable begins with DAYBOOK_."""

from collections.abc import Mapping

from pydantic import Field, SecretStr

from services.kernel.settings import Port, ProcessSettings


class ReadSettings(ProcessSettings):
    """Shared by the projection and the query API; times are seconds."""

    database_url: str = "postgresql://daybook@127.0.0.1:27432/daybook"


class MigrationSettings(ReadSettings):
    """`database_url` is a superuser's; `role_passwords`: JSON, by role (`roles.py`), or empty: then the roles stay as
    they are, and the tables are the connected user's."""

    role_passwords: Mapping[str, SecretStr] = Field(default_factory=dict)


class ProjectionSettings(ReadSettings):
    health_port: Port = 27413
    projection_group: str = "daybook-projection"
    # a name that no other process of the group has, and that stays over restarts; empty: none
    projection_instance: str = ""
    batch_events: int = 1000
    fetch_wait_seconds: float = 0.05
    session_seconds: float = 10
    stall_seconds: float = 30
    max_parked_keys: int = 100


class QuerySettings(ReadSettings):
    http_host: str = "127.0.0.1"
    http_port: Port = 27403
    health_port: Port = 27409
    database_connections: int = 10
    wait_seconds: float = 2
    max_wait_seconds: float = 30
    stuck_seconds: float = 300
