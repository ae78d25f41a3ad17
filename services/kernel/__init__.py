"""The kernel: an event-sourced service on Kafka, without business logic.

KernelError
├── Aborted
├── LaterEpoch
├── LayoutChanged
├── Malformed
├── MalformedToken
├── NotCaughtUp
├── NotKnown
├── OwnershipLost
│   └── Fenced
├── RecordsJudged
├── Refused
├── StoodDown
├── Undecodable
└── VersionGap
"""


class KernelError(Exception):
    """The base of what the kernel raises. Its subclasses describe what happened and what follows."""
