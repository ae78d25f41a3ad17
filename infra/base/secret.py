"""Generated secrets, kept in files that only their owner can read."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def kept_secret(file: Path) -> str:
    """The secret in `file`, made on first use with mode 0600.

    The file appears with its whole content, also where the disk is full: a secret is never half there.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-") as fresh:  # mode 0600
            fresh.write(secrets.token_urlsafe(24))
            fresh.flush()
            with suppress(FileExistsError):  # somebody else was first
                os.link(fresh.name, file)
    return file.read_text()
