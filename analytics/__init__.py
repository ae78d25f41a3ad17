"""Analytics: the whole log as Spark frames, for marts and for the audit.

AnalyticsError
├── AheadOfLog
├── BadExpectation
├── BrokenStream
├── DatabaseUnreachable
├── NoSession
├── LakeBusy
├── LakeLogReplaced
├── LogUnreachable
├── NoLake
├── NotRecorded
├── Occupied
├── ReplayIncomplete
├── UndecodableValue
└── Unfit
"""
