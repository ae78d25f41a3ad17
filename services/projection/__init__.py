"""The read models: rows in PostgreSQL, folded from the log, and the query API that reads them.

ProjectionError
├── AlreadyRebuilding
├── NothingParked
├── NothingToRebuild
├── NothingToRollBack
├── RowMismatch
├── SourceUnreachable
├── Stopped
│   ├── LogReplaced
│   ├── NotMigrated
│   ├── OtherCode
│   ├── PositionLost
│   ├── SourceGap
│   ├── Stalled
│   └── TooManyParked
├── StreamForked
└── UnsupportedVersion
"""


class ProjectionError(Exception):
    """Everything that the projection raises; the docstring above shows the tree."""
