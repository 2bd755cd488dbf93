"""What lives outside this process, written down where a later one finds it.

`kill -9` gives nobody a chance to tidy up. So a provider writes a note before it makes anything, and removes it when
the thing is gone: what, and which process it belongs to (its number and when it started, since numbers come back).
``proctor sandbox list`` reads the notes; ``proctor sandbox cleanup`` gives those of dead processes to their providers.

The notes are small files in the user's state folder (``PROCTOR_STATE_DIR``, else ``XDG_STATE_HOME/proctor``, else
``~/.local/state/proctor``), or in the system's temporary folder where that cannot be written.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from proctor.runtime.clock import iso_now
from proctor.runtime.settings import environ

SUFFIX: Final = ".json"
PRIVATE: Final = 0o700


@frozen(kw_only=True)
class Note:
    """One thing that lives outside.

    Attributes:
        id: unique. type: of sandbox. task: whose it is. created: ISO 8601.
        pid, started: the process it belongs to, and when that began in the system's own words; "" where unknown.
        things: what the provider needs to remove it: folders, names of containers.
    """

    id: str
    type: str
    task: str = ""
    created: str = field(factory=iso_now)
    pid: int = field(factory=os.getpid)
    started: str = field(factory=lambda: start_of(os.getpid()))
    things: Mapping[str, Any] = field(factory=dict)

    @property
    def orphaned(self) -> bool:
        """Whether its process has ended."""
        return not (self.started and start_of(self.pid) == self.started)


def start_of(pid: int) -> str:
    """When a process began, in words that no other process of this number shares; "" when there is none.

    From Linux's ``/proc`` (proc(5), field 22, and the boot's own id); elsewhere only whether the number is in use.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        if stat[0] in {b"Z", b"X"}:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return ""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        except OSError:
            pass
        return "in use"
    return f"{boot}/{stat[19].decode()}"


def notes_folder() -> Path:
    """Where the notes are; made when missing, for this user alone."""
    base = environ("PROCTOR_STATE_DIR")
    state = environ("XDG_STATE_HOME")
    wanted = Path(base) if base else (Path(state) if state else Path.home() / ".local/state") / "proctor"
    for folder in (wanted / "sandboxes", Path(tempfile.gettempdir()) / f"proctor-{os.getuid()}" / "sandboxes"):
        with suppress(OSError):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="proctor-sandboxes-"))


def write_note(note: Note) -> Path:
    """Write a note down, at once and as a whole."""
    folder = notes_folder()
    path, half = folder / f"{note.id}{SUFFIX}", folder / f".{note.id}"
    text = {name: getattr(note, name) for name in ("id", "type", "task", "created", "pid", "started", "things")}
    half.write_text(json.dumps(text), encoding="utf-8")
    half.replace(path)
    return path


def remove_note(id: str) -> None:
    """What it stood for is gone."""
    (notes_folder() / f"{id}{SUFFIX}").unlink(missing_ok=True)


def read_notes(type: str | None = None) -> list[Note]:
    """All notes, of one type of sandbox where that is given, oldest first; what is no note is left out."""
    found = [note for path in _paths() if (note := _read(path)) is not None]
    return sorted((note for note in found if type in {None, note.type}), key=lambda note: (note.created, note.id))


def orphans(type: str, id: str | None = None) -> list[Note]:
    """Notes of a type whose process has ended; with an id only that one."""
    return [note for note in read_notes(type) if note.orphaned and id in {None, note.id}]


def _paths() -> Iterator[Path]:
    with suppress(OSError):
        yield from notes_folder().glob(f"*{SUFFIX}")


def _read(path: Path) -> Note | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Note(**{name: found[name] for name in ("id", "type", "task", "created", "pid", "started", "things")})
    except (OSError, ValueError, KeyError, TypeError):
        return None
