"""Who may call the shop: the demo's issuer of access tokens."""
