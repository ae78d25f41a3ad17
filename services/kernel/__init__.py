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
