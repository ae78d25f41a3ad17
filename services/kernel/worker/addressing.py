"""Whether a command stands where it belongs, and can be answered: what is wrong is parked."""

from __future__ import annotations

from contracts.kernel.records import OutcomeBatch
from services.kernel.errors import KernelError
from services.kernel.log.rule import home_of
from services.kernel.record.envelope import Malformed, Metadata
from services.kernel.record.registry import schema_id


class LaterEpoch(KernelError):
    """Somebody writes in a later site epoch: this worker's time is over."""


def later_epoch(claimed: int, own: int, site: int) -> LaterEpoch | Malformed:
    """What a command of an epoch later than the worker's own means, where the site is in epoch `site` now."""
    about = f"a command of epoch {claimed}, this worker writes in {own}"
    return LaterEpoch(about) if site >= claimed else Malformed(about)


def answerable(metadata: Metadata) -> Metadata:
    """The same. Raises `Malformed`: an outcome for a place where none can be written would stop the slot."""
    if (address := metadata.reply_to) is not None:
        try:
            schema_id(address.topic, OutcomeBatch.TYPE)
        except KeyError:
            raise Malformed(f"no outcomes are written to {address.topic!r}") from None
        if address.partition is None and not address.key:
            raise Malformed("an outcome needs a partition or a key")
    return metadata


def require_address(partition: int, partitions: int, key: str, metadata: Metadata) -> None:
    """Raises `Malformed`: a foreign producer with another partitioner would give one entity two writers."""
    if metadata.subject != key:
        raise Malformed(f"the key is {key!r}, the subject {metadata.subject!r}")
    if home_of(key, partitions) != partition:
        raise Malformed(f"{key!r} does not belong to partition {partition}: produce with murmur2")
