"""Analytics: the whole log as Spark frames, for marts and for the audit.

AnalyticsError
├── AheadOfLog
├── BadExpectation
├── BrokenStream
├── DatabaseUnreachable
├── LakeBusy
├── LakeLogReplaced
├── LogUnreachable
├── NoLake
├── NoSession
├── NotRecorded
├── Occupied
├── ReplayIncomplete
├── UndecodableValue
└── Unfit
"""
