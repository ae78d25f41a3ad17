"""Why a process of the shop ended. docs/reference/exit-codes.md says what each code means and what happens next."""

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOST = 3
EXIT_LAYOUT = 4
EXIT_GAP = 5
EXIT_STOOD_DOWN = 6
EXIT_JUDGED = 7
EXIT_REBUILT = 8
