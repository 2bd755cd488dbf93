"""Processors available to the run: affinity and control-group quotas, on fixture trees."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from proctor.runtime.cpus import cgroup_quota, cpus

V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
V1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def tree(root: Path, *, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup + "\n")
    (root / "proc/self/mountinfo").write_text(mountinfo + "\n")
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_without_any_control_group_the_affinity_decides(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) == math.inf
    assert cpus(root=tmp_path, affinity=6) == 6


def test_version_2_quota_is_floored(tmp_path: Path) -> None:
    tree(tmp_path, cgroup="0::/job", mountinfo=V2, files={"/sys/fs/cgroup/job/cpu.max": "250000 100000"})
    assert cgroup_quota(tmp_path) == 2.5
    assert cpus(root=tmp_path, affinity=64) == 2
    assert cpus(root=tmp_path, affinity=1) == 1


def test_version_2_without_a_limit(tmp_path: Path) -> None:
    tree(tmp_path, cgroup="0::/job", mountinfo=V2, files={"/sys/fs/cgroup/job/cpu.max": "max 100000"})
    assert cpus(root=tmp_path, affinity=3) == 3


def test_a_quota_below_one_processor_leaves_one(tmp_path: Path) -> None:
    tree(tmp_path, cgroup="0::/job", mountinfo=V2, files={"/sys/fs/cgroup/job/cpu.max": "20000 100000"})
    assert cpus(root=tmp_path, affinity=8) == 1


@pytest.mark.parametrize("limited", ["", "/a", "/a/b", "/a/b/c"])
def test_the_smallest_quota_of_the_ancestors_holds(tmp_path: Path, limited: str) -> None:
    quotas = dict.fromkeys(["", "/a", "/a/b", "/a/b/c"], "800000 100000")
    quotas[limited] = "300000 100000"
    files = {f"/sys/fs/cgroup{group}/cpu.max": text for group, text in quotas.items()}
    tree(tmp_path, cgroup="0::/a/b/c", mountinfo=V2, files=files)
    assert cpus(root=tmp_path, affinity=64) == 3


def test_a_sibling_group_does_not_matter(tmp_path: Path) -> None:
    files = {"/sys/fs/cgroup/a/cpu.max": "400000 100000", "/sys/fs/cgroup/b/cpu.max": "100000 100000"}
    tree(tmp_path, cgroup="0::/a", mountinfo=V2, files=files)
    assert cpus(root=tmp_path, affinity=64) == 4


def test_version_1_quota(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "50000",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    tree(tmp_path, cgroup="4:memory:/other\n3:cpu,cpuacct:/job", mountinfo=f"{V1_MEMORY}\n{V1}", files=files)
    assert cpus(root=tmp_path, affinity=64) == 3


def test_both_versions_at_once_take_the_smaller(tmp_path: Path) -> None:
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
    files = {
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "500000",
        "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/unified/job/cpu.max": "200000 100000",
    }
    tree(tmp_path, cgroup="3:cpu,cpuacct:/job\n0::/job", mountinfo=f"{V1}\n{unified}", files=files)
    assert cpus(root=tmp_path, affinity=64) == 2


def test_in_a_container_the_group_is_found_below_the_mounted_part(tmp_path: Path) -> None:
    mount = "41 31 0:38 /docker/abc /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw"
    files = {
        "/sys/fs/cgroup/cpu.max": "400000 100000",
        "/sys/fs/cgroup/inner/cpu.max": "200000 100000",
        "/sys/fs/cgroup/docker/abc/inner/cpu.max": "100000 100000",  # a folder of that name must not be mistaken
    }
    tree(tmp_path, cgroup="0::/docker/abc/inner", mountinfo=mount, files=files)
    assert cpus(root=tmp_path, affinity=64) == 2


@pytest.mark.parametrize("path", ["/", "/../..", "/elsewhere"])
def test_a_group_outside_what_is_mounted_is_limited_by_the_mounted_part(tmp_path: Path, path: str) -> None:
    mount = "41 31 0:38 /docker/abc /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw"
    tree(tmp_path, cgroup=f"0::{path}", mountinfo=mount, files={"/sys/fs/cgroup/cpu.max": "400000 100000"})
    assert cpus(root=tmp_path, affinity=64) == 4


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    mount = r"41 31 0:38 / /mnt/control\040groups rw,relatime - cgroup2 cgroup2 rw"
    tree(tmp_path, cgroup="0::/job", mountinfo=mount, files={"/mnt/control groups/job/cpu.max": "200000 100000"})
    assert cpus(root=tmp_path, affinity=64) == 2


@pytest.mark.parametrize("text", ["", "nonsense", "0 100000", "100000 0", "-1 100000", "1e5 100000"])
def test_a_quota_that_makes_no_sense_is_ignored(tmp_path: Path, text: str) -> None:
    tree(tmp_path, cgroup="0::/job", mountinfo=V2, files={"/sys/fs/cgroup/job/cpu.max": text})
    assert cpus(root=tmp_path, affinity=5) == 5


def test_unreadable_files_are_ignored(tmp_path: Path) -> None:
    tree(tmp_path, cgroup="0::/a/b", mountinfo=V2, files={"/sys/fs/cgroup/a/cpu.max": "300000 100000"})
    (tmp_path / "sys/fs/cgroup/a/b/cpu.max").mkdir(parents=True)  # a folder cannot be read as a file, root or not
    assert cpus(root=tmp_path, affinity=64) == 3


def test_garbage_in_proc_is_ignored(tmp_path: Path) -> None:
    tree(tmp_path, cgroup="::\nx\n0::relative\n\xff", mountinfo="a b\n - \nx - cgroup2\n" + V2, files={})
    assert cpus(root=tmp_path, affinity=7) == 7


def test_on_this_machine_it_is_at_least_one_and_at_most_all() -> None:
    assert 1 <= cpus() <= (os.cpu_count() or 1)
