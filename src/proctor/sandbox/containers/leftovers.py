"""How what was made for a sample is found again: names, labels and notes; and how it is removed."""

from __future__ import annotations

import os
import re
from typing import Final

from proctor.errors import SandboxUnavailableError
from proctor.sandbox.containers.engine import Engine, is_missing
from proctor.sandbox.owned import Note, remove_note, start_of, write_note
from proctor.sandbox.threads import in_thread

PREFIX: Final = "proctor"
RUN_LABEL: Final = "proctor.run"
PROJECT_LABEL: Final = "proctor.project"
COMPOSE_LABEL: Final = "com.docker.compose.project"


def new_project_id(task_name: str) -> str:
    """A name for the containers of a sample, which no other run on any machine uses: ``proctor-mytask-3f9c…``.

    It is not an id of the runtime's: a run with the same seed, or one that was killed, may have left those behind.
    """
    words = re.sub(r"[^a-z\d]+", "-", task_name.lower()).strip("-")[:12].strip("-")
    return f"{PREFIX}-{words or 'task'}-{os.urandom(6).hex()}"


def run_label() -> str:
    """By which the containers of this process are known: its number and when it began."""
    return f"{os.getpid()}:{start_of(os.getpid())}"


def of_dead_run(label: str) -> bool:
    """Whether the process that a run label names has ended here; False when it belongs to another boot or machine.

    A label of an earlier boot of this machine cannot be told from another machine's; the engine that is asked is
    usually this machine's own, whose containers do not outlive a boot running, so both count as dead.
    """
    pid, _, started = label.partition(":")
    return not (pid.isdigit() and started and start_of(int(pid)) == started)


async def remove_project(
    engine: Engine,
    id: str,
    *,
    patience: float = 0.0,
    known: tuple[str, ...] = (),
    networks: bool = True,
    volumes: bool = True,
) -> None:
    """Remove everything of a project; what is not there is no error.

    Args:
        patience: seconds between asking a container to end and ending it.
        known: its containers, when they are known. networks, volumes: whether there may be any.

    Raises:
        SandboxUnavailableError: something is still there.
    """
    ids = list(known) or await labelled(engine, id, "ps", "--all", "--quiet", "--no-trunc")
    failed = []
    if ids:
        wait = ["--time", f"{patience:.0f}"] if engine.name == "podman" else []
        if patience and engine.name == "docker":
            await engine.call("stop", "--time", f"{patience:.0f}", *ids, ending=True)
        failed.append(await _gone(engine, "rm", "--force", "--volumes", *wait, *ids))
    for kind, wanted in (("network", networks), ("volume", volumes)):
        if wanted and (names := await labelled(engine, id, kind, "ls", "--quiet")):
            failed.append(await _gone(engine, kind, "rm", "--force", *names))
    left = "; ".join(each for each in failed if each)
    if left:
        raise SandboxUnavailableError(f"{id} could not be removed: {left}")
    await in_thread(remove_note, id)


async def _gone(engine: Engine, *args: str) -> str:
    """Remove; what was said when that failed."""
    result = await engine.call(*args, ending=True)
    if result.success or is_missing(result.stderr):
        return ""
    return result.stderr.decode("utf-8", "replace").strip() or f"code {result.returncode}"


async def labelled(engine: Engine, id: str, *args: str) -> list[str]:
    """What of a kind belongs to a project, whoever made it: we, or ``docker compose`` for us."""
    found: list[str] = []
    for label in (PROJECT_LABEL, COMPOSE_LABEL) if engine.name == "docker" else (PROJECT_LABEL,):
        said = await engine.ask(*args, "--filter", f"label={label}={id}", ending=True)
        found += [each for each in said.split() if each not in found]
    return found


async def note_project(engine: Engine, id: str, task_name: str) -> None:
    """Write down that a project is about to be made."""
    await in_thread(write_note, Note(id=id, type=engine.name, task=task_name, things={"project": id}))


__all__ = [
    "COMPOSE_LABEL",
    "PROJECT_LABEL",
    "RUN_LABEL",
    "labelled",
    "new_project_id",
    "note_project",
    "of_dead_run",
    "remove_project",
    "run_label",
]
