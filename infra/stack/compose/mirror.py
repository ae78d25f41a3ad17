"""What the mirror in its container is told, written by the code that tells the embedded one.

`python -m infra.stack.compose.mirror`: writes DAYBOOK_MIRROR_FILE, before the mirror starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.log.topics import mirrored_topics
from infra.stack.mirror_settings import MirrorPlace, mirror_properties


class MirrorSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before each. `peer` and `peer_kafka` are the site that is copied."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    site: str
    kafka: str
    peer: str
    peer_kafka: str
    mirror_file: Path
    mirror_port: int


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
    settings.mirror_file.write_text(mirror_properties(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
