"""Changes the slot layout of a service, as a Job: `python -m infra.k8s.layout order 2`.

The workers' StatefulSet runs a pod for each slot; a pod whose slot the layout does not have yet waits. More slots:
first the pods, then this. Fewer slots: first this, then the pods. It does nothing if the layout is there already, and
continues what an interrupted run began. Only one may run at a time: the Jobs of a service have one name.
"""

import sys

from confluent_kafka import KafkaException

from contracts.topics import TOPICS
from infra.base.errors import DaybookError, NotReady
from infra.base.settings import FromEnvironment
from infra.log.control import change_layout, read_site
from services.kernel.log.reader import partitions_of
from services.kernel.log.transactions import OwnershipLost


class LayoutSettings(FromEnvironment):
    """Environment variable: DAYBOOK_KAFKA, the site's brokers."""

    kafka: str


def apply_layout(bootstrap: str, service: str, slots: int) -> str:
    """Share the service's partitions among `slots` slots. Returns what was done, in words.

    Raises NotReady, SiteSilent, TimeoutError, OwnershipLost or KafkaException; a second call continues.
    """
    control = read_site(bootstrap)
    if control.role.role != "active" or control.held:
        raise NotReady(
            f"the site is {control.held or control.role.role}: change the layout of the active site"
        )
    if slots > (partitions := len(partitions_of(bootstrap, TOPICS[service].commands))):
        raise NotReady(f"{service} has {partitions} partitions, and each slot needs one")
    layout = control.layout(service)
    if layout.slots == slots and layout.number > 0:
        return f"{service} has {slots} slots already (layout {layout.number})"
    number = change_layout(bootstrap, service, slots).number
    return f"{service} has {slots} slots from now on (layout {number})"


def main(arguments: list[str]) -> int:
    """The process's exit code: 0 done, 1 not done, 2 wrong arguments."""
    match arguments:
        case [service, slots] if service in TOPICS and slots.isdecimal() and int(slots) > 0:
            pass
        case _:
            print(f"use: python -m infra.k8s.layout {'|'.join(TOPICS)} SLOTS", file=sys.stderr)
            return 2
    settings = LayoutSettings()  # type: ignore[call-arg] # from the environment
    try:
        print(apply_layout(settings.kafka, service, int(slots)))
    except (DaybookError, KafkaException, TimeoutError, OwnershipLost) as reason:
        print(f"layout: {reason}; run it again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
