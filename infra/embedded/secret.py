"""Generated secrets, kept in files that only their owner can read."""

import os
import secrets
from pathlib import Path


def kept_secret(file: Path) -> str:
    """The secret in `file`, made on first use with mode 0600."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(24))
    return file.read_text()
