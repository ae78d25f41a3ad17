"""What the mirror in its container is told, written by the code that tells the embedded one.

`python -m infra.stack.compose.mirror`: writes DAYBOOK_MIRROR_FILE, before the mirror starts. At an active site
there must be no mirror: the file is removed, and the mirror waits for it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.base.errors import NotReady
from infra.log.asking import Address, SiteSilent, ask
from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from infra.stack.start import end_last_mirror

PATIENCE_SECONDS = 60.0


class MirrorSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before each. `peer` and `peer_kafka` are the site that is copied."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    site: str
    kafka: str
    peer: str
    peer_kafka: str
    mirror_file: Path
    mirror_port: int


def _end_last_mirror(own: Address, source: str) -> None:
    """A young broker's coordinators take seconds to load. Raises NotReady after a minute."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            end_last_mirror(own, source)
            return
        except NotReady:
            if time.monotonic() > until:
                raise


def main() -> int:
    """The process's exit code."""
    settings = MirrorSettings()  # type: ignore[call-arg] # from the environment
    place = MirrorPlace(
        settings.mirror_file.parent,
        settings.mirror_port,
        settings.peer,
        settings.site,
        settings.peer_kafka,
        settings.kafka,
        mirrored_topics(),
    )
    own = Address(settings.site, settings.kafka)
    try:
        role = ask(settings.kafka, PATIENCE_SECONDS).role
    except SiteSilent as silent:
        print(f"mirror: {silent}", file=sys.stderr)
        return 1
    if role.role != "passive":
        settings.mirror_file.unlink(missing_ok=True)
        print(f"no mirror into {settings.site}, which is active in epoch {role.epoch}", flush=True)
        return 0
    _end_last_mirror(own, settings.peer)
    settings.mirror_file.write_text(mirror_properties(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
