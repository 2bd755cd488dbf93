"""The command line of ``bwrap``: what a command in it sees, and under which limits it runs.

Nothing is there but what is named here: programs, libraries and settings of this machine, read-only; a working folder
and ``/tmp`` of its own; ``/proc`` and ``/dev`` of its own. No home folders, no ``/run`` with its sockets, no ``/var``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import asdict, field, fields, frozen

from proctor.errors import OptionError, UsageError
from proctor.process import ExecResult, run_process
from proctor.runtime.settings import whole_number

MB: Final = 1024 * 1024
NOBODY: Final = 65534  # the user and group without rights, on every Linux
SEEN: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
EMPTY: Final = ("/home", "/root", "/run", "/mnt", "/srv", "/var/lib")
WORK: Final = "/work"
NAMESPACES: Final = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ELSEWHERE: Final = 'cd -- "$1" && shift && exec "$@"'
PROBE: Final = 10.0  # seconds
SHARED: Final = 64  # MB of /dev/shm, as containers have
INSTALL: Final = "install it with: apt-get install bubblewrap util-linux (or your system's command)"
ALLOW: Final = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), run as root, or use docker or podman"
)


def _megabytes(_: Any, attribute: Any, value: Any) -> None:
    if value is not None:
        whole_number(value, option=f"sandbox bubblewrap: {attribute.name}")


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@frozen(kw_only=True)
class Bubblewrap:
    """What a bubblewrap sandbox is configured with.

    Attributes:
        network: share the network of this machine; by default there is none.
        memory: MB of address space of each process; None for no limit.
        processes: processes and threads at once; None for no limit.
        file_size: MB that a file may have; None for no limit.
        bind: more folders or files of this machine that are seen, read-only.
        environment: variables that commands have.
    """

    network: bool = False
    memory: int | None = field(default=4096, validator=_megabytes)
    processes: int | None = field(default=256, validator=_megabytes)
    file_size: int | None = field(default=1024, validator=_megabytes)
    bind: tuple[str, ...] = field(default=(), converter=_texts)
    environment: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, config: Any) -> Bubblewrap:
        """The configuration that was asked for: None, one of these, a mapping, JSON of it, or a file of that.

        Raises:
            OptionError: it is none of them, or has a field that there is not.
        """
        if config is None or isinstance(config, cls):
            return config or cls()
        if isinstance(config, str):
            config = _parsed(config)
        names = [each.name for each in fields(cls)]
        if not isinstance(config, Mapping) or not all(name in names for name in config):
            raise OptionError(
                f"sandbox bubblewrap: its configuration is a mapping or Bubblewrap(…) with {', '.join(names)}, not "
                f"{config!r}"
            )
        return cls(**config)

    def model_dump(self) -> dict[str, Any]:
        """As plain data, for the log."""
        return asdict(self)


def _parsed(config: str) -> Any:
    try:
        text = config if config.lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OptionError(f"sandbox bubblewrap: its configuration {config} cannot be read: {reason}") from None
    except ValueError as error:
        raise OptionError(f"sandbox bubblewrap: its configuration {config} is no JSON: {error}") from None


@frozen(kw_only=True)
class Jail:
    """How namespaces are made on this machine.

    Attributes:
        bwrap, prlimit: where the programs are. setpriv: the same, where we are root.
        namespace: whether a namespace of users can be made; without one only root can make the others.
    """

    bwrap: str
    prlimit: str
    setpriv: str | None = None
    namespace: bool = True

    @property
    def as_nobody(self) -> bool:
        """Whether commands run as nobody, since we are root."""
        return self.setpriv is not None

    def command(
        self,
        folder: Path,
        config: Bubblewrap,
        cmd: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
    ) -> list[str]:
        """The command line for a command.

        Args:
            folder: of the environment, with ``work`` and ``tmp``. terminal: let it have the terminal.
        """
        inner = list(cmd) if cwd is None else ["sh", "-c", ELSEWHERE, "sh", cwd, *cmd]
        drop = [self.setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if self.setpriv else []
        made = [self.bwrap, *NAMESPACES, "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
        if not terminal:
            made.append("--new-session")
        if self.namespace:
            made.append("--unshare-user")
        else:
            made += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        if not config.network:
            made.append("--unshare-net")
        # Root without its rights may not enter what is nobody's: then only nobody goes there.
        made += [
            *self._variables(config, env),
            *_mounts(folder, config),
            "--chdir",
            WORK if self.namespace else "/",
            "--",
        ]
        if not self.namespace:
            inner = ["sh", "-c", ELSEWHERE, "sh", WORK, *inner]
        inner = [self.prlimit, *_limits(config), "--", *inner]
        if self.namespace:
            return [*drop, *made, *inner]
        return [*made, *drop, "--inh-caps=-all", *inner]

    def _variables(self, config: Bubblewrap, env: Mapping[str, str] | None) -> list[str]:
        given = {"PATH": PATH, "HOME": WORK, "LANG": "C.UTF-8", **config.environment, **(env or {})}
        return [word for name, value in given.items() for word in ("--setenv", name, value)]


def _limits(config: Bubblewrap) -> list[str]:
    limits = ["--core=0"]
    if config.memory is not None:
        limits.append(f"--as={config.memory * MB}")
    if config.processes is not None:
        limits.append(f"--nproc={config.processes}")
    if config.file_size is not None:
        limits.append(f"--fsize={config.file_size * MB}")
    return limits


def _mounts(folder: Path, config: Bubblewrap) -> list[str]:
    words: list[str] = []
    for path in SEEN:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    if config.network:
        words += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    for path in EMPTY:
        words += ["--dir", path]
    # What lies in /dev is in memory: there is a little of it for programs that share it, and no more.
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(SHARED * MB)]
    words += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108 - inside
    words += ["--bind", str(folder / "tmp"), "/tmp", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - inside
    words += ["--bind", str(folder / "work"), WORK]
    for path in config.bind:
        words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", "/"]


async def find_jail() -> Jail:
    """How namespaces can be made here.

    Raises:
        UsageError: programs are missing, or the kernel refuses; the text says what to do.
    """
    bwrap, prlimit = shutil.which("bwrap"), shutil.which("prlimit")
    if bwrap is None or prlimit is None:
        raise UsageError(f"sandbox bubblewrap: {'bwrap' if bwrap is None else 'prlimit'} is not installed; {INSTALL}")
    setpriv = shutil.which("setpriv") if os.geteuid() == 0 else None
    if os.geteuid() == 0 and setpriv is None:
        raise UsageError(f"sandbox bubblewrap: setpriv, which it needs when it is run by root, is missing; {INSTALL}")
    jails = [Jail(bwrap=bwrap, prlimit=prlimit, setpriv=setpriv)]
    if setpriv is not None:
        jails.append(Jail(bwrap=bwrap, prlimit=prlimit, setpriv=setpriv, namespace=False))
    said = []
    for jail in jails:
        probe = await _probe(jail)
        if probe.success:
            return jail
        said.append(probe.stderr.decode(errors="replace").strip())
    raise UsageError(f"sandbox bubblewrap: it does not work here: {said[0] or 'no reason given'}; {ALLOW}")


async def _probe(jail: Jail) -> ExecResult[bytes]:
    """Whether it works, in folders that everyone may see."""
    folder = Path("/usr")
    args = jail.command(folder, Bubblewrap(), ["true"])
    # The folders of an environment do not exist yet: others stand for them.
    for name in ("work", "tmp"):
        args[args.index(str(folder / name))] = str(folder)
    return await run_process(args, env={}, clear_env=True, timeout=PROBE)
