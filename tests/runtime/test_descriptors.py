"""The soft limit of open files is raised where the hard one allows it, and never lowered."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from proctor.runtime import descriptors as module
from proctor.runtime.descriptors import AMPLE, UNLIMITED, Descriptors, descriptors, raise_descriptors


class System:
    """A system with limits of its own."""

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft: int, hard: int, *, refuses: bool = False) -> None:
        self.limits = (soft, hard)
        self.refuses = refuses

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == self.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == self.RLIMIT_NOFILE
        if self.refuses:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "needed", "after"),
    [
        (1024, 4096, 2000, 2000),
        (1024, 4096, 9000, 4096),
        (1024, 4096, 100, 1024),
        (1024, -1, 9000, 9000),
        (4096, 4096, 9000, 4096),
    ],
)
def test_it_is_raised_to_what_is_needed_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, needed: int, after: int
) -> None:
    system = System(soft, hard)
    monkeypatch.setattr(module, "resource", system)
    assert raise_descriptors(needed) == Descriptors(after, UNLIMITED if hard == -1 else hard)
    assert system.limits == (after, hard)


def test_an_unlimited_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resource", System(-1, -1))
    assert raise_descriptors() == Descriptors(UNLIMITED, UNLIMITED)


def test_a_system_that_refuses_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resource", System(1024, 4096, refuses=True))
    assert raise_descriptors(2000) == Descriptors(1024, 4096)


def test_a_system_without_such_limits_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resource", None)
    assert raise_descriptors(10**6) == descriptors() == Descriptors(UNLIMITED, UNLIMITED)


def test_a_real_process_raises_its_own() -> None:
    code = (
        "from proctor.runtime.descriptors import raise_descriptors\n"
        "import resource\n"
        "now = raise_descriptors()\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == now.soft\n"
        "print(now.soft, now.hard)"
    )
    command = ["sh", "-c", 'ulimit -Sn 100; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = SimpleNamespace(**dict(zip(("soft", "hard"), map(int, done.stdout.split()), strict=True)))
    assert found.soft == min(AMPLE, found.hard) > 100
