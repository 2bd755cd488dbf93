"""Folders that sandboxes on this machine work in, made for one sample and removed after it."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from proctor.sandbox.threads import in_stoppable_thread

PREFIX: Final = "proctor-sandbox-"
ENOUGH: Final = 0o700
ATTEMPTS: Final = 20
PAUSE: Final = 0.05  # seconds between them


def folder_name(id: str) -> Path:
    """Where the folder of an environment is to be; nothing is made yet."""
    return Path(tempfile.gettempdir()) / f"{PREFIX}{id}"


async def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, whatever its permissions; nothing when there is none.

    Raises:
        OSError: something in it cannot be removed.
    """
    await in_stoppable_thread(_remove_all, folder)


def _remove_all(folder: Path, stop: threading.Event) -> None:
    for attempt in range(ATTEMPTS):
        try:
            return _remove(folder, stop)
        except OSError as error:
            # Something was put into it meanwhile: by whatever still ran there, whose end takes a moment.
            if error.errno != errno.ENOTEMPTY or attempt == ATTEMPTS - 1 or stop.wait(PAUSE):
                raise
    return None


def _remove(folder: Path, stop: threading.Event) -> None:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(folder, ENOUGH)
        entries = list(os.scandir(folder))
    with suppress(OSError):
        os.chmod(folder, ENOUGH)  # what is taken out of it needs its permission
    for entry in entries:
        if stop.is_set():
            return
        if entry.is_dir(follow_symlinks=False):
            _remove(Path(entry.path), stop)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    if not stop.is_set():
        folder.rmdir()
