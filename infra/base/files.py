"""Files: written as a whole, logs of bounded size, generated secrets, and folders for sockets."""

import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

KEPT_BYTES = 16 * 1024 * 1024
KEPT_FILES = 3
# The kernel allows 107 bytes for a socket's path, 103 on macOS; its name in the folder takes up to 20.
SOCKET_FOLDER_BYTES = 80


def write_whole(file: Path, content: bytes) -> None:
    """Replace a file: no reader sees a part of it, not even after a power cut."""
    fresh = file.with_suffix(".fresh")
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())  # otherwise the new name may reach the disk before the content
    fresh.replace(file)


def write_changed(file: Path, content: bytes) -> None:
    """`write_whole`, unless the file has this content."""
    if not file.exists() or file.read_bytes() != content:
        write_whole(file, content)


def rotate(file: Path, kept_bytes: int = KEPT_BYTES, *, written: bool = False) -> None:
    """Rename a file of more than `kept_bytes` to `<file>.1`, the older ones to `.2`, `.3`; drop the oldest.

    A file to which a process still appends (`written`) is copied and truncated: lines written between the two
    are lost. Where the disk has no room for that, the file stays as it is.
    """
    with suppress(OSError):
        if file.stat().st_size <= kept_bytes:
            return
        for number in range(KEPT_FILES - 1, 0, -1):
            with suppress(FileNotFoundError):
                older(file, number).replace(older(file, number + 1))
        if not written:
            file.replace(older(file, 1))
            return
        try:
            shutil.copyfile(file, older(file, 1))
        except OSError:
            older(file, 1).unlink(missing_ok=True)
        else:
            os.truncate(file, 0)


def older(file: Path, number: int) -> Path:
    """The name of the `number`-th rotated file."""
    return file.with_name(f"{file.name}.{number}")


def kept_secret(file: Path, secret: str = "") -> str:
    """The secret in `file`; on first use `secret`, or a new one. It is written as a whole or not at all, mode 0600."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-") as fresh:  # mode 0600
            fresh.write(secret or secrets.token_urlsafe(24))
            fresh.flush()
            with suppress(FileExistsError):  # another process was first
                os.link(fresh.name, file)
    return file.read_text()


def socket_folder(folder: Path) -> Path:
    """`folder`, or where its path is too long for a socket in it, a folder of /tmp that belongs to it alone."""
    path = os.fsencode(folder.absolute())
    if len(path) <= SOCKET_FOLDER_BYTES:
        return folder.absolute()
    return Path("/tmp") / f"daybook-{os.getuid()}-{hashlib.blake2b(path, digest_size=8).hexdigest()}"
