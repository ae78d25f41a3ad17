"""The HTTP edge: what the APIs of all services share. It uses the kernel and contains no business rules.

A request passes `protocol`, `middleware`, the route of `requests`, `identity`, the service's own `api.py`, `writes` and
`gateway`, and an error becomes a response in `problems`. `server`, `app`, `settings` and `json_logs` start and
configure a process.

EdgeError
├── Problem
└── Unavailable
    ├── BeyondLossBudget
    ├── LogUnavailable
    ├── OutcomeUnknown
    ├── Overloaded
    ├── PeerUnavailable
    └── SiteUnavailable
"""
