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
├── NoToken
├── NotAtRest
├── NotCopied
├── NotDone
├── NotParked
├── NotReady
│   └── NotDurable
├── NotRunning
├── NotTogether
├── OtherCommand
├── OtherIds
├── PortTaken
├── SiteSilent
├── TooLate
├── ToolFailed
├── UnreadableRow
└── Unsafe
"""
