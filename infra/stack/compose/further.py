"""The further containers of a kind, as `daybook --stack compose scale` wants them: a file beside the compose files.

Compose can run replicas of a service, but does not tell a replica its number: each needs a slot, or a partition of the
outcomes, of its own. So each is a service of its own, which extends the first one.
"""

from collections.abc import Mapping
from pathlib import Path

from infra.base.files import write_whole
from infra.base.settings import OFFSETS, ROOT
from infra.stack.shop import instances

# As in the Dockerfile. A process that is no API serves nothing but health and metrics.
HTTP_PORT, HEALTH_PORT = 8080, 8090
_SERVICE = """\
  {name}:
    extends: {{ file: {shop}, service: {kind} }}
    environment:
      DAYBOOK_SLOT: {number}
      DAYBOOK_REPLICA: {number}
      DAYBOOK_PROJECTION_INSTANCE: {number}
      DAYBOOK_ALLOWED_HOSTS: 127.0.0.1,localhost,{name}
    ports: !override ["127.0.0.1:${{DAYBOOK_PORTS:-274}}{port:02}:{inside}"]
"""


def further_file(home: Path) -> Path:
    """The file, in the folder of the shop in containers. It exists where something was scaled."""
    return home / "further.yml"


def write_further(home: Path, counts: Mapping[str, int]) -> None:
    """Replace the file: as many containers of each kind as in `counts`."""
    services = [
        _SERVICE.format(
            name=name,
            kind=kind,
            number=number,
            port=OFFSETS[name],
            inside=HTTP_PORT if kind.endswith("-api") else HEALTH_PORT,
            shop=ROOT / "infra/compose/shop.yml",
        )
        for kind, count in counts.items()
        for number, name in enumerate(instances(kind, count))
        if number
    ]
    content = "services:\n" + "".join(services) if services else "services: {}\n"
    write_whole(further_file(home), content.encode())
