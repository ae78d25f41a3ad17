"""Everything that runs, checks and drills the shop: no business logic.

DaybookError
├── ComeAgain
├── ContractError
├── DrillFailed
├── EngineFailed
├── JarsNotResolved
├── JavaNotFound
├── NoOutcome
├── NoResponse
│   └── NothingThere
├── NoSuchRecord
├── NoSuchTopic
├── NoToken
├── NotAtRest
├── NotCopied
├── NotDone
├── NotParked
├── NotPossible
├── NotReady
│   └── NotDurable
├── NotRewindable
├── NotRunning
├── NotScaled
├── NotTogether
├── OtherCommand
├── OtherIds
├── PortTaken
├── SiteSilent
├── TooLate
├── ToolFailed
├── Undecidable
├── UnreadableRow
└── Unsafe
"""
