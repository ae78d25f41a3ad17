"""Who may do what in Kafka: the principals and rights of `contracts/topics.yaml`, and the broker's users and ACLs.

The broker denies everything else. Its brokers and `admin` are super users, which no rule binds.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from contracts.lock import ROOT
from contracts.topics import TOPICS
from infra.log.topics import CONTROL, catalogue
from services.kernel.log import clients
from services.kernel.log.clients import NO_GROUP
from services.kernel.log.control import Phase, read_control

ADMIN = "admin"
MIRROR = "mirror"
# Of SCRAM-SHA-512: Kafka's lowest. A password has 24 random bytes, so more would protect nothing.
ITERATIONS = 4096
SECONDS = 30.0
# Bytes a second of each broker, by the name that Kafka gives the quota, by principal.
Quotas: TypeAlias = Mapping[str, Mapping[str, float]]
_QUOTAS = {"write": "producer_byte_rate", "read": "consumer_byte_rate"}
_MEGABYTE = 1_000_000


@dataclass(frozen=True, order=True)
class Right:
    """`principal` may do `operation` (read, write, create, delete, describe, describe_configs) to a `kind` of resource:
    topic, group, transactional_id. A `name` that ends in `*` stands for all that begin so."""

    principal: str
    kind: str
    name: str
    operation: str

    def binding(self) -> AclBinding:
        """The same as the broker's ACL."""
        prefixed = self.name.endswith("*")
        return AclBinding(
            ResourceType[self.kind.upper()],
            self.name.removesuffix("*"),
            ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
            f"User:{self.principal}",
            "*",
            AclOperation[self.operation.upper()],
            AclPermissionType.ALLOW,
        )


def principals() -> list[str]:
    """Everybody in the catalogue, without the super users."""
    return list(_section())


def rights(phase: Phase = "closed") -> frozenset[Right]:
    """Every right in the catalogue. Before a shop's inputs are closed, its workers write commands too (ADR 20)."""
    earlier = () if phase == "closed" else product(TOPICS, TOPICS.values())
    return frozenset(_rights(_section())).union(
        Right(f"{service}-worker", "topic", topics.commands, "write") for service, topics in earlier
    )


def quotas() -> Quotas:
    """Of the principals that have some, in bytes a second."""
    return {
        principal: {_QUOTAS[name]: megabytes * _MEGABYTE for name, megabytes in own["quotas"].items()}
        for principal, own in _section().items()
        if "quotas" in own
    }


def _section() -> Mapping[str, Mapping[str, Any]]:
    section: Mapping[str, Mapping[str, Any]] = yaml.safe_load((ROOT / "topics.yaml").read_text("utf-8"))[
        "principals"
    ]
    return section


def _rights(section: Mapping[str, Mapping[str, Any]]) -> Iterator[Right]:
    for topic in catalogue().values():
        mirror = [MIRROR] if topic.mirrored else []
        yield from (
            Right(principal, "topic", topic.name, "write") for principal in [*topic.written_by, *mirror]
        )
        yield from (Right(principal, "topic", topic.name, "read") for principal in [*topic.read_by, *mirror])
    for principal, own in section.items():
        if principal not in (MIRROR, "connect"):  # Java: librdkafka names a group also where it joins none
            yield Right(principal, "group", NO_GROUP, "describe")
        for name in own.get("transactional_ids", ()):
            yield Right(principal, "transactional_id", name, "write")
        for kind in ("group", "topic"):
            for name, operations in own.get(f"{kind}s", {}).items():
                yield from (Right(principal, kind, name, operation) for operation in operations)


def apply_rights(address: str, passwords: Mapping[str, str]) -> tuple[int, int]:
    """Give the users these passwords, and make the broker's rights those of the catalogue.

    `address` is that of a super user. Returns how many rights were added and removed. Raises KafkaException.
    """
    admin = clients.admin(address)
    begun = CONTROL in admin.list_topics(timeout=SECONDS).topics
    expected = {right.binding() for right in rights(read_control(address).phase if begun else "closed")}
    actual = _bindings(admin)
    missing, extra = [*(expected - actual)], [*(actual - expected)]
    for added in (admin.create_acls(missing, request_timeout=SECONDS) if missing else {}).values():
        added.result(SECONDS)
    _remove(admin, extra)
    _set_passwords(admin, passwords)  # last: whoever can connect has its rights
    return len(missing), len(extra)


def _set_passwords(admin: AdminClient, passwords: Mapping[str, str]) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    alterations = [
        UserScramCredentialUpsertion(user, info, password.encode()) for user, password in passwords.items()
    ]
    for altered in admin.alter_user_scram_credentials(alterations, request_timeout=SECONDS).values():
        altered.result(SECONDS)


def _bindings(admin: AdminClient) -> set[AclBinding]:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return set(admin.describe_acls(every, request_timeout=SECONDS).result(SECONDS))


def _remove(admin: AdminClient, bindings: Collection[AclBinding]) -> None:
    filters = [
        AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        for binding in bindings
    ]
    for removed in (admin.delete_acls(filters, request_timeout=SECONDS) if filters else {}).values():
        removed.result(SECONDS)
