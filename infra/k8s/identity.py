"""Writes who a pod is to Kafka: `python -m infra.k8s.identity`, in an init container before the pod's process.

Strimzi makes a secret with a password for each KafkaUser, and one with the certificate of the cluster's authority. A
client of the shop reads one file of JSON with both. This makes that file from those; with the secrets of the other site
mounted as well, a second one for its brokers. A renewed secret needs a new pod.
"""

import sys
from pathlib import Path

import msgspec

from infra.base.errors import NotReady
from infra.base.settings import FromEnvironment
from services.kernel.log.clients import KafkaIdentity

OWN, PEER = "own", "peer"


class IdentitySettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each.

    `kafka_user` is the KafkaUser. The folder `kafka_secrets` contains `own-password` and `own-ca.crt`, perhaps also
    `peer-password` and `peer-ca.crt`; the files are written to the folder `kafka_identity`.
    """

    kafka_user: str
    kafka_secrets: Path = Path("/run/secrets/kafka")
    kafka_identity: Path = Path("/run/kafka")


def write_identities(settings: IdentitySettings) -> list[Path]:
    """Write `own.json` and, where there is a peer, `peer.json`. Returns the written files.

    Raises NotReady where the own secrets are missing, OSError where a file cannot be read or written.
    """
    written = []
    for site in (OWN, PEER):
        password, authority = (settings.kafka_secrets / f"{site}-{name}" for name in ("password", "ca.crt"))
        if password.exists() and authority.exists():
            identity = KafkaIdentity(authority.read_text(), settings.kafka_user, password.read_text())
            file = settings.kafka_identity / f"{site}.json"
            file.write_bytes(msgspec.json.encode(identity))
            written.append(file)
        elif site == OWN:
            raise NotReady(f"{settings.kafka_secrets} has no {password.name} and {authority.name}")
    return written


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    try:
        write_identities(IdentitySettings())  # type: ignore[call-arg] # from the environment
    except (NotReady, OSError) as reason:
        sys.exit(f"identity: {reason}")


if __name__ == "__main__":
    main()
