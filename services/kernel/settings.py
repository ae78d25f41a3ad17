"""Environment variables that every process of the shop reads, all with the prefix DAYBOOK_; times as named."""

import os
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

# A folder with one file per variable, used if the variable is not set: containers pass secrets this way.
SECRETS = os.environ.get("DAYBOOK_SECRETS") or None

Positive = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=1, le=65535)]


class ProcessSettings(BaseSettings):
    """What all share: `kafka` is host:port[,host:port…], `health_host` and `health_port` serve health and metrics.

    `peer_kafka`: the other site's broker for this site, where there are two. `lease_seconds`: how long a site may write
    after it has seen the other one, the same at both; 0: as long as it runs.
    """

    model_config = SettingsConfigDict(
        env_prefix="DAYBOOK_", frozen=True, secrets_dir=SECRETS, hide_input_in_errors=True
    )

    kafka: str = "127.0.0.1:27492"
    peer_kafka: str = ""
    lease_seconds: Annotated[int, Field(ge=0)] = 0
    site: str = "home"
    health_host: str = "127.0.0.1"
    health_port: Port = 8090
    log_level: str = "INFO"


class WorkerSettings(ProcessSettings):
    """The owner of a slot; how many slots there are is in `site.control`."""

    slot: Annotated[int, Field(ge=0)] = 0
    window_ms: Annotated[float, Field(ge=0)] = 5.0
    snapshot_seconds: Positive = 10.0
    retry_window_hours: Positive = 24.0
    transaction_timeout_ms: Annotated[int, Field(ge=1000, le=10_000)] = 10_000
    redrive_seconds: Positive = 30.0
    takeover_hours: Positive = 1.0
