"""Environment variables of every process's HTTP side, with the prefix DAYBOOK_; times in seconds."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from services.kernel.settings import Port, Positive, ProcessSettings


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Hosts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_split)]


class EdgeSettings(BaseSettings):
    """Limits of requests from the network. Lists are separated by commas.

    `allowed_hosts`: names and addresses, without ports, by which clients may call the process, in addition
    to the address that it listens on. `trusted_proxies`: addresses or networks whose `X-Forwarded-For` is used.
    `connections_per_address`: limit per client. `header_seconds`, `body_seconds`: how long a client may take.
    """

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    allowed_hosts: Hosts = ("127.0.0.1", "localhost", "[::1]")
    trusted_proxies: Networks = ()
    connections_per_address: Annotated[int, Field(ge=1)] = 512
    header_seconds: Positive = 10.0
    body_seconds: Positive = 30.0


class TokenSettings(BaseSettings):
    """Access tokens (docs/reference/tokens.md).

    `token_keys`: the issuer's public keys, a JWKS in a file or at a URL; empty: tokens are not verified, and every
    caller may do everything. `token_issuer`, `token_audience`: what a token must name.
    """

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    token_keys: str = ""
    token_issuer: str = ""
    token_audience: str = "daybook"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.token_keys and not (self.token_issuer and self.token_audience):
            raise ValueError("DAYBOOK_TOKEN_KEYS needs DAYBOOK_TOKEN_ISSUER and DAYBOOK_TOKEN_AUDIENCE")
        return self


class LimitSettings(BaseSettings):
    """How many requests a caller may send to one process; 0: any number.

    `requests_per_second`: a customer, whose token has no scopes but orders:place and orders:read.
    `staff_requests_per_second`: everybody else with a token. `burst_seconds`: after a pause, so many seconds' requests
    may come at once.
    """

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    requests_per_second: Annotated[float, Field(ge=0)] = 20.0
    staff_requests_per_second: Annotated[float, Field(ge=0)] = 0.0
    burst_seconds: Positive = 2.0


class ApiSettings(ProcessSettings):
    """A write API. `http_host` and `http_port`: where its clients call it.

    `replica`: its own partition of `<service>.outcomes`. `hash_key`: a secret of 16 to 64 bytes of ASCII,
    the same for all replicas and over restarts, with which requests are fingerprinted. `query_url`: where
    Location points. `peer_url`: this API at the other site, where there are two.
    `both_sites_seconds`: how long a write with `Durability: both-sites` waits for the other site, after its outcome.
    `loss_budget_seconds`: writes are refused while the other site lacks one that was acknowledged longer ago; 0: none
    is. `max_pending`: commands that wait for their outcome, more get 503. `former_keys_hours`: for so long after its
    start, the API looks for what a request did under an id of the version before.
    """

    http_host: str = "127.0.0.1"
    http_port: Port = 8080
    replica: Annotated[int, Field(ge=0)] = 0
    hash_key: Annotated[SecretStr, Field(min_length=16, max_length=64)]
    query_url: str = "http://127.0.0.1:27403"
    peer_url: str = ""
    both_sites_seconds: Positive = 2.0
    loss_budget_seconds: Annotated[float, Field(ge=0)] = 0.0
    wait_seconds: Positive = 10.0
    delivery_seconds: Positive = 5.0
    max_pending: Annotated[int, Field(ge=1)] = 4096
    former_keys_hours: Annotated[float, Field(ge=0)] = 24.0
