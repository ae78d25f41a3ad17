"""Writes the configuration of the mirror in its container, with the code of the embedded one.

`python -m infra.stack.compose.mirror` writes DAYBOOK_MIRROR_FILE before the mirror starts. At an active site there
must be no mirror: it removes the file, and the mirror waits for it.
"""

from pathlib import Path

from contracts.kafka_address import sibling
from infra.base.errors import NotReady
from infra.base.settings import FromEnvironment
from infra.base.waiting import wait_until
from infra.log.control import Address, SiteSilent, read_site
from infra.log.rights import MIRROR
from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from infra.stack.start import end_last_mirror

PATIENCE_SECONDS = 300.0  # two clusters may start on two cores


class MirrorSettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each. `peer` and `peer_kafka` are the site that is copied.

    The addresses are for whoever may end a mirror's transactions; the mirror's own file lies beside that one's.
    """

    site: str
    kafka: str
    peer: str
    peer_kafka: str
    mirror_file: Path
    mirror_port: int


def main() -> None:
    """Write the file, or remove it."""
    settings = MirrorSettings()  # type: ignore[call-arg] # from the environment
    mirror = MirrorPlace(
        settings.mirror_file.parent,
        settings.mirror_port,
        settings.peer,
        settings.site,
        sibling(settings.peer_kafka, MIRROR),
        sibling(settings.kafka, MIRROR),
        mirrored_topics(),
    )
    own = Address(settings.site, settings.kafka)
    # A young broker does not know its partitions yet, and its coordinators take seconds to load.
    role = wait_until(
        lambda: read_site(settings.kafka).role, "the site's role", PATIENCE_SECONDS, later=(SiteSilent,)
    )
    if role.role != "passive":
        settings.mirror_file.unlink(missing_ok=True)
        print(f"no mirror into {settings.site}, which is active in epoch {role.epoch}", flush=True)
        return
    wait_until(
        lambda: end_last_mirror(own, settings.peer),
        "the last mirror is fenced",
        PATIENCE_SECONDS,
        enough=lambda _: True,
        later=(NotReady,),
    )
    settings.mirror_file.write_text(mirror_properties(mirror))


if __name__ == "__main__":
    main()
