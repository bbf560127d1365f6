# SPDX-License-Identifier: Apache-2.0
"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import UsageError


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) to `path`; a reader sees the old file or the whole new one, never a part.

    A device such as /dev/stdout is written to directly. Raises UsageError that names the path and the reason
    (no such folder, no permission, disk full); nothing half-written is left behind.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    with _naming(target):
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        target = target.resolve()  # through a symbolic link, so that the link stays one
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a full disk may show only here
            os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def check_writable(path: str | os.PathLike) -> None:
    """Raises UsageError when `write_atomically(path, …)` is bound to fail, so that a long run need not end with it."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target}: expected a file to write, this is a folder")
    if target.exists() and not target.is_file():
        return
    folder = target.resolve().parent
    with _naming(target):
        if not folder.is_dir():
            raise FileNotFoundError(2, f"there is no folder {folder}")
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
