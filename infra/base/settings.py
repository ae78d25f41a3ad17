"""Where a stack lives and on which ports: DAYBOOK_HOME, DAYBOOK_PORT_BASE, DAYBOOK_SITE and DAYBOOK_STACK."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.kafka_address import secured
from infra.base.ports import HOST

ROOT, SECRETS = Path(__file__).parents[2], os.environ.get("DAYBOOK_SECRETS") or None

# Distance of each process's port from the base.
OFFSETS = {
    "broker": 92,
    "controller": 93,
    # of a stack with two sites: the broker's second listener, and what stands before it
    "peer": 94,
    "link": 95,
    # the broker's listener for brokers and the start of the site, with certificates
    "internal": 5,
    "postgres": 32,
    "registry": 4,
    "order-worker": 11,
    "order-api": 1,
    "inventory-worker": 12,
    "inventory-api": 2,
    "projection": 13,
    "query-api": 3,
    "guard": 14,
    "mirror": 15,
    # of a stack with two sites: the router itself, and its address of each API
    "router": 16,
    "router-order": 17,
    "router-inventory": 18,
    "router-query": 19,
    "spark-master": 77,
    "spark-master-ui": 80,
    "spark-worker-1": 81,
    "spark-worker-1-ui": 83,
    "spark-worker-2": 82,
    "spark-worker-2-ui": 84,
}
# Of one kind at most so many processes. The further ones, as `order-worker-1`, have these offsets plus their numbers.
MOST = 8
FURTHER = {
    "order-worker": 20,
    "inventory-worker": 40,
    "order-api": 50,
    "inventory-api": 60,
    "projection": 33,
    "query-api": 68,
}
OFFSETS |= {
    f"{kind}-{number}": first + number for kind, first in FURTHER.items() for number in range(1, MOST)
}
# An API and the registry have health and metrics on a port of their own, by number. Of a write API there are four at
# most, one for each partition of its outcomes. The other processes have nothing else, and one port.
_HEALTH: Mapping[str, Sequence[int]] = {
    "registry": (8,),
    "order-api": range(28, 32),
    "inventory-api": range(96, 100),
    "query-api": (9, 10, 48, 49, 50, 78, 79, 91),
}
OFFSETS |= {
    f"{kind}-{number}-health" if number else f"{kind}-health": offset
    for kind, offsets in _HEALTH.items()
    for number, offset in enumerate(offsets)
}
# Of a site that is a cluster: three brokers and three controllers.
CLUSTER = 3
_NODES = {"broker": 84, "controller": 86, "peer": 88, "link": 57, "internal": 5}
OFFSETS |= {
    f"{kind}-{number}": first + number for kind, first in _NODES.items() for number in range(1, CLUSTER)
}
# The file in the folder of such a site, which is made before its first start.
CLUSTER_ID = "cluster-id"
# The file in the folder of a site whose Kafka takes anyone, in clear text.
INSECURE = "insecure"
LOWEST_BASE, HIGHEST_BASE = 1024, 65535 - 100
# Distance of the second site's base from the first's.
AWAY_PORTS = 200
# Of the folder of the shop in containers, beside the embedded one's.
COMPOSE_SUFFIX = "-compose"


class FromEnvironment(BaseSettings):
    """What the environment sets for a process, or a file of DAYBOOK_SECRETS: DAYBOOK_ before each name."""

    model_config = SettingsConfigDict(
        env_prefix="DAYBOOK_", frozen=True, secrets_dir=SECRETS, hide_input_in_errors=True
    )


class StackSettings(FromEnvironment):
    """One site: `home` holds all its state, logs and secrets; ports are `port_base` and up to 99 above it.

    A second site has its folder inside this one and its ports 200 further on (`infra/stack/site.py`).
    `stack`: child processes of this machine, or containers, as `./daybook --stack compose` sets it.
    `principal`: as whom this process connects to Kafka, where it is secured (`contracts/topics.yaml`).
    `storage_reserve_mb`: with less free space on its disks the site refuses writes (`infra/stack/storage.py`).
    """

    home: Path = ROOT / ".daybook"
    port_base: Annotated[int, Field(ge=LOWEST_BASE, le=HIGHEST_BASE)] = 27400
    site: Literal["home", "away"] = "home"
    stack: Literal["embedded", "compose"] = "embedded"
    principal: Annotated[str, Field(pattern="[a-z-]+")] = "admin"
    storage_reserve_mb: Annotated[int, Field(ge=128)] = 512
    authorizer_log: Path | None = None  # where its brokers write everything that they allow and deny

    @property
    def typed(self) -> str:
        """The command as it is typed for this stack."""
        return typed_for(self.stack)

    @property
    def named_home(self) -> Path:
        """DAYBOOK_HOME as a user sets it: the shop in containers has its own folder beside that one."""
        home = self.home.absolute()
        return home.with_name(home.name.removesuffix(COMPOSE_SUFFIX)) if self.stack == "compose" else home

    def port(self, name: str) -> int:
        """The port of a process, by its name in OFFSETS."""
        return self.port_base + OFFSETS[name]

    def url(self, name: str) -> str:
        """The `http://…` address of a process."""
        return f"http://{HOST}:{self.port(name)}"

    def health_port(self, name: str) -> int:
        """The port of a process's health and metrics."""
        return self.port(f"{name}-health" if f"{name}-health" in OFFSETS else name)

    def ports(self, name: str) -> tuple[int, ...]:
        """The ports of a process of the shop: one or two."""
        return tuple(dict.fromkeys((self.port(name), self.health_port(name))))

    def health_url(self, name: str) -> str:
        """The `http://…` address of a process's health and metrics."""
        return f"http://{HOST}:{self.health_port(name)}"

    @property
    def brokers(self) -> int:
        """How many brokers the site has, and how many controllers."""
        return CLUSTER if (self.home / CLUSTER_ID).exists() else 1

    def nodes(self, kind: str) -> list[str]:
        """The site's names of a kind in OFFSETS, one for each broker: broker, broker-1, broker-2."""
        return [kind, *(f"{kind}-{number}" for number in range(1, self.brokers))]

    def bootstrap_of(self, kind: str) -> str:
        """`host:port` of each of these, separated by commas."""
        return ",".join(f"{HOST}:{self.port(name)}" for name in self.nodes(kind))

    @property
    def secured(self) -> bool:
        """Whether its Kafka has TLS, users and rights."""
        return not (self.home / INSECURE).exists()

    @property
    def kafka_identities(self) -> Path:
        """The folder of Kafka's certificates and passwords (`infra/identity/authority.py`)."""
        return self.home / "kafka-identities"

    def kafka_as(self, principal: str, kind: str = "broker", identities: Path | None = None) -> str:
        """The address of the brokers, or of these ports of theirs, for a principal.

        Its file is in the site's own folder, or in `identities`: both sites have the same.
        """
        bootstrap, folder = self.bootstrap_of(kind), identities or self.kafka_identities
        return secured(bootstrap, folder / f"{principal}.json") if self.secured else bootstrap

    @property
    def kafka(self) -> str:
        """The address of the brokers for this process."""
        return self.kafka_as(self.principal)

    @property
    def logs(self) -> Path:
        return self.home / "logs"


def typed_for(stack: str) -> str:
    """The command as it is typed for a stack; alone it is about the embedded one."""
    return "./daybook" if stack == "embedded" else f"./daybook --stack {stack}"
