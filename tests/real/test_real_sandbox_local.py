"""The provider ``local`` through the checks that any sandbox must pass, and that the checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define

from proctor.process import ExecResult
from proctor.sandbox.folders import remove_folder
from proctor.sandbox.local import LocalSandbox
from proctor.sandbox.marked import remove_marked
from proctor.sandbox.owned import read_notes, remove_note
from proctor.testing import run_real
from proctor.testing.sandbox_check_words import COUNT
from proctor.testing.sandbox_checks import CHECKS, CheckFailed, CheckSkipped, SandboxCheck, run_check

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path))
    yield tmp_path
    assert read_notes() == [], "something was left behind"


def left() -> int:
    return len(read_notes("local"))


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_local_sandbox(check: SandboxCheck, backend: str) -> None:
    try:
        run_real(backend, partial(run_check, check, "local", left=left))
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@define(eq=False)
class Unkilling(LocalSandbox):
    """A mutant: what times out or is cancelled is given up, and goes on until the sample's end."""

    async def exec(self, cmd: list[str], *args: Any, **more: Any) -> ExecResult[str]:
        timeout, more["timeout"] = more.get("timeout"), None
        if timeout is None and COUNT not in cmd:
            return await super().exec(cmd, *args, **more)
        await super().exec(["sh", "-c", 'setsid "$@" >/dev/null 2>&1 &', "sh", *cmd], *args, **more)
        with anyio.fail_after(timeout):
            await anyio.sleep_forever()
        raise AssertionError


@define(eq=False)
class Repeating(LocalSandbox):
    """A mutant: what timed out is run once more."""

    async def exec(self, cmd: list[str], *args: Any, **more: Any) -> ExecResult[str]:
        try:
            return await super().exec(cmd, *args, **more)
        except TimeoutError:
            return await super().exec(cmd, *args, **more)


@define(eq=False)
class Leaking(LocalSandbox):
    """A mutant: a cancellation in its making leaves what was made."""

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> Any:
        made = await super().sample_init(task_name, config, metadata)
        await anyio.lowlevel.checkpoint()
        return made


@define(eq=False)
class Sparing(LocalSandbox):
    """A mutant: its removal takes the folder away under what runs in it."""

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Any, environments: dict[str, Any], interrupted: bool) -> None:
        for each in environments.values():
            await remove_folder(each.folder)
            remove_note(each.id)


FOUND = {
    Unkilling: {
        "what_timed_out_is_dead",
        "a_child_of_what_timed_out_is_dead",
        "a_child_in_a_session_of_its_own_is_dead",
        "what_ignores_signals_is_dead",
        "what_floods_its_output_is_dead",
        "what_was_cancelled_is_dead",
    },
    Repeating: {"what_timed_out_is_not_run_again"},
    Sparing: {"its_removal_ends_what_still_runs"},
    Leaking: {"cancelled_at_any_await_of_its_making_nothing_is_left"},
}


@pytest.mark.parametrize(
    ("provider", "check"),
    [(provider, check) for provider, names in FOUND.items() for check in CHECKS if check.name in names],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_a_mutant_is_found(provider: type[LocalSandbox], check: SandboxCheck, backend: str) -> None:
    with pytest.raises(CheckFailed):
        run_real(backend, partial(run_check, check, provider, left=left))
    for note in read_notes("local"):
        # What the leaking one left belongs to this living process: only by hand is it removed.
        run_real(backend, partial(remove_marked, note.id, Path(note.things["folder"])))


def test_every_check_of_a_kill_has_a_mutant() -> None:
    kills = {check.name for check in CHECKS if check.kills}
    found = set().union(*FOUND.values())
    unproved = {
        "a_timeout_raises_in_time",  # of the raise itself
        "after_a_timeout_the_sandbox_goes_on",
        "cancelled_at_any_await_a_command_leaves_nothing",
        "cancelled_at_any_await_a_file_does_no_harm",
    }
    assert kills - found == unproved
