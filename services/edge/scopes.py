"""The scopes of access tokens (docs/reference/tokens.md)."""

SCOPES = {
    "orders:place": "Place orders as the token's subject",
    "orders:place.any": "Place orders for any customer, and cancel any order",
    "orders:ship": "Hand orders to a carrier",
    "orders:return": "Take back goods",
    "stock:receive": "Receive deliveries",
    "stock:adjust": "Write off or find units",
    "orders:read": "Read the orders of the token's subject",
    "orders:read.all": "Read all orders",
    "sales:read": "Read sales",
    "ops:read": "Read positions, lag and stuck orders",
    "ops:act": "For operators; no route needs it yet",
}
OF_CUSTOMERS = frozenset({"orders:place", "orders:read"})
"""A token with no others acts only for its subject."""
WIDER = {"orders:place": "orders:place.any", "orders:read": "orders:read.all"}
"""A scope that includes another one."""
