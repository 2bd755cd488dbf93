"""The provider ``local``: a temporary folder and this machine itself. It isolates nothing.

For tasks whose commands are known, and for trying things out. What a sample's commands leave running is found by a mark
in its environment and killed with the sample.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import define

from proctor.errors import SandboxUnavailableError
from proctor.process import ExecResult, open_process
from proctor.runtime import new_id
from proctor.sandbox.environment import SandboxConnection, SandboxEnvironment, SandboxProcess, sandboxenv
from proctor.sandbox.folders import folder_name
from proctor.sandbox.limits import read_file_limit, too_large
from proctor.sandbox.marked import MARK, kill_marked, remove_marked
from proctor.sandbox.owned import Note, orphans, remove_note, write_note
from proctor.sandbox.running import as_text, no_program, run_command
from proctor.sandbox.threads import in_thread

logger: Final = logging.getLogger(__name__)

COMMAND_MARK: Final = "PROCTOR_SANDBOX_COMMAND"
ENDING: Final = 3.0  # seconds that looking for what left a command's group may take
PRIVATE: Final = 0o700


@sandboxenv(name="local")
@define(eq=False)
class LocalSandbox(SandboxEnvironment):
    """A folder on this machine.

    Attributes:
        id: unique; what its processes are marked with. folder: where it works.
    """

    id: str
    folder: Path

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command, as the user who runs the evaluation."""
        self._check(user)
        where, number = self._path(cwd or "."), new_id()
        marks = {MARK: self.id, COMMAND_MARK: number}
        try:
            result = await run_command(
                list(cmd),
                input=input,
                cwd=where,
                env={**(env or {}), **marks},
                timeout=timeout,
                concurrency=concurrency,
            )
        except FileNotFoundError:
            self._check(user)
            if not where.is_dir():
                raise FileNotFoundError(f"{cwd}: the working folder does not exist in the sandbox") from None
            return no_program(cmd[0])
        except (TimeoutError, anyio.get_cancelled_exc_class()):
            await self._end_command(number)
            raise
        return as_text(result)

    async def _end_command(self, number: str) -> None:
        """Its group is dead; whatever left that is killed too."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + ENDING):
            await kill_marked(number, COMMAND_MARK)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file."""
        self._check(None)
        data = contents.encode() if isinstance(contents, str) else contents
        await in_thread(_write, self._path(file), data)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Read a file."""
        self._check(None)
        data = await in_thread(_read, self._path(file), read_file_limit())
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in its folder."""
        self._check(None)
        return SandboxConnection(type="local", command=f"cd {shlex.quote(str(self.folder))} && exec $SHELL")

    @asynccontextmanager
    async def open_process(
        self, cmd: list[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> AsyncIterator[SandboxProcess]:
        """Run a command and talk to it meanwhile."""
        self._check(user)
        number = new_id()
        marks = {MARK: self.id, COMMAND_MARK: number}
        try:
            async with open_process(list(cmd), cwd=self._path(cwd or "."), env={**(env or {}), **marks}) as process:
                yield process
        finally:
            await self._end_command(number)

    async def alive(self) -> bool:
        """Whether the folder is there."""
        return self.folder.is_dir()

    def _path(self, file: str) -> Path:
        return self.folder / file

    def _check(self, user: str | None) -> None:
        if not self.folder.is_dir():
            raise SandboxUnavailableError(f"the folder of the sandbox is gone: {self.folder}")
        if user is not None:
            logger.debug("sandbox local runs everything as the user who runs the evaluation, not as %r", user)

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Say what it is not."""
        logger.warning(
            "%s: the sandbox local isolates nothing: commands run on this machine as you; untrusted code belongs in "
            "bubblewrap, docker or podman",
            task_name,
        )

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """A folder of its own; no await comes between it and its note."""
        made = cls(new_id(), Path())
        made.folder = folder_name(made.id)
        write_note(Note(id=made.id, type="local", task=task_name, things={"folder": str(made.folder)}))
        try:
            made.folder.mkdir(mode=PRIVATE)
        except OSError:
            remove_note(made.id)
            raise
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Kill what runs and remove the folders."""
        for each in environments.values():
            if isinstance(each, cls):
                await remove_marked(each.id, each.folder)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what ended runs left."""
        for note in orphans("local", id):
            await remove_marked(note.id, Path(str(note.things["folder"])))


def _write(path: Path, data: bytes) -> None:
    with suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise too_large(limit)
    return data
