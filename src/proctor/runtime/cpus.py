"""How many processors the run may use: the smaller of the affinity mask and the control group's quota.

A container with two processors' worth of quota on a machine of 64 must not start 64 children. The quota of a process
is the smallest over its own control group and every ancestor, in version 1 (``cpu.cfs_quota_us`` and
``cpu.cfs_period_us``) and version 2 (``cpu.max``); both may be mounted at once. Where the groups are mounted, and which
part of the tree, is read from ``mountinfo``: inside a container the group's path often starts above what is mounted
(``/docker/<id>`` mounted at ``/sys/fs/cgroup``, or ``/../..`` in a group namespace). What cannot be read or makes no
sense sets no limit: a wrong guess upwards costs speed, a failure here would cost the run.

`os.process_cpu_count` (Python 3.13) knows the affinity only, which is why it is not used.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from attrs import frozen


@frozen
class _Mount:
    version: int
    root: PurePosixPath
    point: PurePosixPath


@frozen
class _Group:
    version: int
    path: PurePosixPath


def cpus(*, root: Path = Path("/"), affinity: int | None = None) -> int:
    """Processors available to this process: ``max(1, floor(min(affinity, quota)))``.

    Args:
        root: where ``proc`` and the control groups are looked for (a test's fixture tree).
        affinity: the number of processors in the affinity mask, default this process's.
    """
    available = float(affinity if affinity is not None else _affinity())
    quota = cgroup_quota(root)
    return max(1, math.floor(min(available, quota)))


def cgroup_quota(root: Path = Path("/")) -> float:
    """The smallest processor quota over the own control group and its ancestors, infinite when there is none."""
    mounts = list(_mounts(_read(root / "proc/self/mountinfo")))
    smallest = math.inf
    for group in _groups(_read(root / "proc/self/cgroup")):
        for mount in mounts:
            if mount.version == group.version:
                for folder in _folders(mount, group):
                    smallest = min(smallest, _quota(root / folder.relative_to("/"), group.version))
    return smallest


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def _groups(text: str) -> Iterator[_Group]:
    """The own groups that can hold a processor quota, from ``/proc/self/cgroup``: ``id:controllers:path`` lines."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            yield _Group(2, PurePosixPath(path))
        elif "cpu" in controllers.split(","):
            yield _Group(1, PurePosixPath(path))


def _mounts(text: str) -> Iterator[_Mount]:
    """Where control groups with processor quotas are mounted, from ``/proc/self/mountinfo`` (see proc(5))."""
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, filesystem = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or len(filesystem) < 3:
            continue
        root, point = PurePosixPath(_unescape(fields[3])), PurePosixPath(_unescape(fields[4]))
        if not point.is_absolute():
            continue
        if filesystem[0] == "cgroup2":
            yield _Mount(2, root, point)
        elif filesystem[0] == "cgroup" and "cpu" in filesystem[2].split(","):
            yield _Mount(1, root, point)


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _folders(mount: _Mount, group: _Group) -> Iterator[PurePosixPath]:
    """The group's folder and every ancestor's up to the mount point, as far as they can be seen through the mount."""
    parts = [part for part in group.path.parts if part not in {"/", ".."}]
    above = [part for part in mount.root.parts if part not in {"/", ".."}]
    if parts[: len(above)] == above:
        parts = parts[len(above) :]
    elif above:
        # The group lies outside what is mounted (a namespace hides it); only the mounted part can be read.
        parts = []
    for length in range(len(parts), -1, -1):
        yield mount.point.joinpath(*parts[:length])


def _quota(folder: Path, version: int) -> float:
    if version == 2:
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    else:
        quota = _read(folder / "cpu.cfs_quota_us").strip()
        period = _read(folder / "cpu.cfs_period_us").strip()
    try:
        allowed, of = int(quota), int(period or "100000")
    except ValueError:  # "max", empty or unreadable
        return math.inf
    return allowed / of if allowed > 0 and of > 0 else math.inf
