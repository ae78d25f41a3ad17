"""Environment variables of the order service, all with the prefix DAYBOOK_; times as their names say."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

# A folder of files, each named as a variable and read where that is not set: how containers get secrets.
SECRETS = os.environ.get("DAYBOOK_SECRETS")

Positive = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=1, le=65535)]


class OrderSettings(BaseSettings):
    """What API and worker share: `kafka` is host:port[,host:port…], `http_host` the address to listen on."""

    model_config = SettingsConfigDict(
        env_prefix="DAYBOOK_", frozen=True, secrets_dir=SECRETS, hide_input_in_errors=True
    )

    kafka: str = "127.0.0.1:27492"
    site: str = "home"
    http_host: str = "127.0.0.1"
    log_level: str = "INFO"


class OrderApiSettings(OrderSettings):
    """The HTTP side.

    `replica`: its own partition of `order.outcomes`. `hash_key`: a secret of at least 16 characters,
    the same for all replicas and over restarts, with which requests are fingerprinted. `query_url`: where
    Location points. `peer_url`: this API at the other site, where there are two. `max_pending`: commands
    awaiting their outcome, more are answered 503.
    `settle_seconds`: an order not settled by then expires; `settled_wait_seconds` bounds `?wait=settled`.
    """

    http_port: Port = 27401
    replica: Annotated[int, Field(ge=0)] = 0
    hash_key: Annotated[SecretStr, Field(min_length=16)]
    query_url: str = "http://127.0.0.1:27403"
    peer_url: str = ""
    wait_seconds: Positive = 10.0
    delivery_seconds: Positive = 5.0
    max_pending: Annotated[int, Field(ge=1)] = 4096
    settle_seconds: Positive = 60.0
    settled_wait_seconds: Positive = 5.0


class OrderWorkerSettings(OrderSettings):
    """The owner of a slot; `layout` is the number of the slot layout that it belongs to."""

    http_port: Port = 27411
    slot: Annotated[int, Field(ge=0)] = 0
    slots: Annotated[int, Field(ge=1)] = 1
    layout: Annotated[int, Field(ge=1)] = 1
    window_ms: Annotated[float, Field(ge=0)] = 5.0
    snapshot_seconds: Positive = 10.0
    retry_window_hours: Positive = 24.0
    transaction_timeout_ms: Annotated[int, Field(ge=1000, le=10_000)] = 10_000
    redrive_seconds: Positive = 30.0
    takeover_hours: Positive = 1.0
