"""The HTTP edge: what the APIs of all services share. It uses the kernel and contains no business rules.

EdgeError
├── Problem
└── Unavailable
    ├── LogUnavailable
    ├── OutcomeUnknown
    ├── Overloaded
    └── SiteUnavailable
"""
