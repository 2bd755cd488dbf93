"""The provider ``bubblewrap``: untrusted code on this machine without an engine.

Each command runs in namespaces of its own, made by ``bwrap`` in some 20 ms: no network unless asked for, its own
processes, nothing of this machine but programs and libraries, and those read-only. Between commands of a sample only
its files live on, in its working folder and its ``/tmp``. So when a command is over, everything it started is dead, and
a timeout needs no more than to kill ``bwrap``.

What bubblewrap does not do is done around it: memory, processes and file sizes are limited by ``prlimit``. Started by
root, everything runs as nobody instead: the kernel counts no processes of root, and what only root may read would be
readable. Files are read and written by commands inside, never from outside: a link that untrusted code has made must
not lead out.

Rejected: one ``bwrap`` a sample that commands are sent into. It needs a server inside, which untrusted code can kill or
imitate, and a command's processes could outlive it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar
from attrs import define

from proctor.errors import SandboxUnavailableError, UsageError
from proctor.process import ExecResult, open_process
from proctor.runtime import new_id
from proctor.sandbox.environment import SandboxConnection, SandboxEnvironment, SandboxProcess, sandboxenv
from proctor.sandbox.folders import folder_name
from proctor.sandbox.inside import read_inside, write_inside
from proctor.sandbox.jail import NOBODY, Bubblewrap, Jail, find_jail
from proctor.sandbox.marked import MARK, remove_marked
from proctor.sandbox.owned import Note, orphans, remove_note, write_note
from proctor.sandbox.running import as_text, run_command

PRIVATE: Final = 0o700
ENTERED: Final = 0o711  # whoever knows its name gets through it, to folders that are private
OWN_FAILURES: Final = (b"bwrap: ", b"setpriv: ", b"prlimit: failed to set", b"prlimit: cannot")
PROBE: Final = 10.0  # seconds that the question may take whether the sandbox works at all

_jail: Final[RunVar[Jail]] = RunVar("proctor_bubblewrap")


@sandboxenv(name="bubblewrap")
@define(eq=False)
class BubblewrapSandbox(SandboxEnvironment):
    """A working folder and a ``/tmp`` that commands see in namespaces of their own.

    Attributes:
        id: unique. folder: on this machine, with ``work`` and ``tmp`` in it. config: as asked for.
        jail: how namespaces are made here.
    """

    id: str
    folder: Path
    config: Bubblewrap
    jail: Jail

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
        """Run a command in new namespaces."""
        return as_text(await self.run(list(cmd), input, cwd, env, user, timeout=timeout, concurrency=concurrency))

    async def run(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        *,
        timeout: float | None = None,
        concurrency: bool = True,
        output_limit: int | None = None,
    ) -> ExecResult[bytes]:
        """As `exec`, with bytes for output."""
        self._check(user)
        args = self.jail.command(self.folder, self.config, cmd, cwd=cwd, env=env)
        result = await run_command(
            args,
            input=input,
            cwd=self.folder,
            env={MARK: self.id},
            clear_env=True,
            timeout=timeout,
            concurrency=concurrency,
            output_limit=output_limit,
        )
        if not result.success and result.stderr.startswith(OWN_FAILURES):
            await self._prove(result)
        return result

    async def _prove(self, failed: ExecResult[bytes]) -> None:
        """Its own words may have been the command's: does the sandbox work at all?"""
        args = self.jail.command(self.folder, self.config, ["true"])
        with anyio.move_on_after(PROBE):
            probe = await run_command(
                args, input=None, cwd=self.folder, env={}, clear_env=True, timeout=None, concurrency=False
            )
            if probe.success:
                return
        said = failed.stderr.decode(errors="replace").strip()[:500]
        raise SandboxUnavailableError(f"the sandbox {self.folder} does not work any more: {said}")

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, from inside."""
        await write_inside(self.run, file, contents.encode() if isinstance(contents, str) else contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Read a file, from inside."""
        data = await read_inside(self.run, file)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in it."""
        self._check(user)
        args = self.jail.command(self.folder, self.config, ["sh", "-i"], terminal=True)
        return SandboxConnection(type="bubblewrap", command=shlex.join(args))

    @asynccontextmanager
    async def open_process(
        self, cmd: list[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> AsyncIterator[SandboxProcess]:
        """Run a command and talk to it meanwhile."""
        self._check(user)
        args = self.jail.command(self.folder, self.config, list(cmd), cwd=cwd, env=env)
        async with open_process(args, cwd=self.folder, env={MARK: self.id}, clear_env=True) as process:
            yield process

    async def alive(self) -> bool:
        """Whether its folder is there."""
        return (self.folder / "work").is_dir()

    def _check(self, user: str | None) -> None:
        if not (self.folder / "work").is_dir():
            raise SandboxUnavailableError(f"the folder of the sandbox is gone: {self.folder}")
        if user is not None:
            raise UsageError(f"sandbox bubblewrap runs everything as one user without rights, not as {user!r}")

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> Bubblewrap:
        """The configuration from the dict that stands for it in a log."""
        return Bubblewrap.of(config)

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Look whether it works here.

        Raises:
            UsageError: ``bwrap`` is missing or the kernel refuses it; the text says what to do.
        """
        Bubblewrap.of(config)
        _jail.set(await find_jail())

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Folders of its own; no await comes between them and their note."""
        jail = _jail.get(None) or await find_jail()
        id = new_id()
        made = cls(id, folder_name(id), Bubblewrap.of(config), jail)
        write_note(Note(id=id, type="bubblewrap", task=task_name, things={"folder": str(made.folder)}))
        try:
            made.folder.mkdir(mode=ENTERED)
            for name in ("work", "tmp"):
                (made.folder / name).mkdir(mode=PRIVATE)
                if jail.as_nobody:
                    os.chown(made.folder / name, NOBODY, NOBODY)
        except OSError:
            remove_note(id)
            raise
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """End what is still open and remove the folders."""
        for each in environments.values():
            if isinstance(each, cls):
                await remove_marked(each.id, each.folder)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what ended runs left."""
        for note in orphans("bubblewrap", id):
            await remove_marked(note.id, Path(str(note.things["folder"])))
