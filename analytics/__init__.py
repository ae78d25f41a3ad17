"""Analytics: the whole log as Spark frames, for marts and for the audit.

AnalyticsError
├── AheadOfLog
├── BadExpectation
├── DatabaseUnreachable
├── JarsMissing
├── LakeBusy
├── LakeDamaged
├── LakeLogReplaced
├── LogUnreachable
├── NoLake
├── ReplayIncomplete
└── UndecodableValue
"""
