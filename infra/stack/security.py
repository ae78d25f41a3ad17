"""What secures the nodes of Kafka: TLS 1.3 on every listener, and who may connect to each.

Clients have users and passwords (SCRAM-SHA-512), and those of the other site, its mirror too, a certificate as well.
Brokers, controllers and the start of a site have the authority's certificate for brokers, on listeners of their own.
"""

from collections.abc import Sequence

from contracts.kafka_address import sibling
from infra.base.settings import StackSettings
from infra.identity.authority import BROKER, Authority
from infra.log.rights import ADMIN, apply_rights, principals, quotas
from infra.stack.site import peer
from infra.stack.tokens import prepare_issuer
from services.kernel.log.clients import Connection

INTERNAL = "internal"
# HOST and PEERHOST are for this machine's clients of a broker in a container, which they reach by another name.
_LINK = ("PEER", "PEERHOST")
_SASL = ("CLIENTS", "HOST", *_LINK)
_CERTIFIED = ("INTERNAL", "CONTROLLER")
_PLAIN = ",".join(f"{name}:PLAINTEXT" for name in ("PLAINTEXT", *_SASL, *_CERTIFIED))
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def authority_of(settings: StackSettings) -> Authority | None:
    """None where the site is not secured."""
    return Authority(settings.kafka_identities) if settings.secured else None


def prepare_identities(settings: StackSettings, more: Sequence[str] = ()) -> None:
    """Make what a secured site lacks of its authority, passwords and issuer, or take the other site's. Raises OSError.

    `more`: users without any right.
    """
    authority, other = authority_of(settings), peer(settings)
    if authority is not None:
        copy = None if other is None else other.settings.kafka_identities
        authority.prepare([ADMIN, *principals(), *more], copy)
        prepare_issuer(settings)


def starting_address(settings: StackSettings) -> str:
    """The address of the brokers for whoever starts the site, before there are users. Raises OSError."""
    prepare_identities(settings)
    return settings.kafka_as(BROKER, INTERNAL) if settings.secured else settings.kafka


def apply_security(settings: StackSettings, more: Sequence[str] = ()) -> tuple[int, int]:
    """Give every principal its password, its rights and its quotas, once the broker runs.

    Returns how many rights were added and removed: none where the site is not secured. Raises KafkaException, NotReady.
    """
    if not settings.secured:
        return 0, 0
    return secure_brokers(settings.kafka_as(BROKER, INTERNAL), settings.kafka_as(ADMIN), more)


def secure_brokers(internal: str, admin: str, more: Sequence[str] = ()) -> tuple[int, int]:
    """The same at these addresses: the brokers' own, and that of `admin`, whose file lies beside those of all users."""
    # Here, because only a start needs aiokafka, whose import takes a quarter of a second.
    from infra.log.quotas import apply_quotas

    users = (ADMIN, *principals(), *more)
    identities = (Connection(sibling(admin, user)).identity for user in users)
    changed = apply_rights(
        internal, {identity.user: identity.password for identity in identities if identity is not None}
    )
    apply_quotas(admin, quotas())
    return changed


def security_properties(authority: Authority | None, *, broker: bool = True) -> dict[str, str]:
    """The settings of a node beside its addresses; a controller alone has no listener for brokers."""
    if authority is None:
        return {"listener.security.protocol.map": _PLAIN}
    protocols = [f"{name}:SASL_SSL" for name in _SASL] + [f"{name}:SSL" for name in _CERTIFIED]
    return {
        "listener.security.protocol.map": ",".join(protocols),
        **({"inter.broker.listener.name": "INTERNAL"} if broker else {}),
        **{f"listener.name.{name.lower()}.ssl.client.auth": "required" for name in (*_CERTIFIED, *_LINK)},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.keystore.absolute()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate.absolute()),
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        **{f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config": _LOGIN for name in _SASL},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{BROKER};User:{ADMIN}",
    }
