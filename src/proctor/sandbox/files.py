"""The files and the setup script of a sample: where their contents come from, and how they get into a sandbox.

A content is a data URI, the URL of a file, the path of a file or folder (relative ones are looked for beside the
dataset and the task, then in the working folder), or else the text itself. A path in the sandbox may name one of
several environments: ``name:path``.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from proctor.errors import ProctorError, UsageError
from proctor.runtime.settings import environ, whole_number
from proctor.sandbox.environment import DEFAULT, SandboxEnvironment
from proctor.sandbox.limits import read_file_limit, readable
from proctor.sandbox.threads import in_stoppable_thread, in_thread

LONGEST_PATH: Final = 4096  # bytes of a path (PATH_MAX of Linux)
SETUP_TIMEOUT: Final = 300  # seconds, as Inspect's
DOWNLOAD_TIMEOUT: Final = 60.0  # seconds without a byte


class SetupFailed(ProctorError):
    """A sample's setup script failed or took too long."""


async def copy_files(
    files: Mapping[str, str], environments: Mapping[str, SandboxEnvironment], folders: Sequence[Path]
) -> None:
    """Write a sample's files into its environments.

    Args:
        files: contents by path in the sandbox. folders: where relative paths are looked for.

    Raises:
        UsageError: an environment that a path names does not exist, or a content cannot be had.
    """
    for target, content in files.items():
        name, path = _split(target, environments)
        for inner, source in await contents(content, folders):
            await environments[name].write_file(f"{path.rstrip('/')}/{inner}" if inner else path, await read(source))


def _split(target: str, environments: Mapping[str, SandboxEnvironment]) -> tuple[str, str]:
    name, colon, path = target.partition(":")
    if not colon:
        return next(iter(environments)), target
    if name in environments:
        return name, path
    if name == DEFAULT:
        return next(iter(environments)), path
    raise UsageError(
        f"files: {target!r} names the sandbox environment {name!r}, and there is none; there is "
        f"{', '.join(environments)} (the part before a colon names an environment)"
    )


async def contents(content: str, folders: Sequence[Path] = ()) -> list[tuple[str, bytes | Path]]:
    """The files that a content stands for: a path below the target ("" for the target itself), and bytes or a file.

    Raises:
        UsageError: it cannot be had.
    """
    if content.startswith("data:"):
        return [("", data_uri(content))]
    if content.startswith(("http://", "https://")) and "\n" not in content:
        return [("", await download(content))]
    found = await in_thread(_find, content, tuple(folders))
    if found is None:
        return [("", content.encode())]
    if not found.is_dir():
        return [("", found)]
    return [(path.relative_to(found).as_posix(), path) for path in await in_thread(_files_below, found)]


async def read(source: bytes | Path) -> bytes:
    """The bytes of what `contents` gave."""
    return source if isinstance(source, bytes) else await in_thread(source.read_bytes)


def data_uri(uri: str) -> bytes:
    """The bytes of a data URI (RFC 2397).

    Raises:
        UsageError: it is none.
    """
    head, comma, body = uri.partition(",")
    if not comma:
        raise UsageError(f"a data URI has a comma before its data: {uri[:60]!r}")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise UsageError(f"the data of {head[:60]!r} is no base64: {error}") from None


async def download(url: str) -> bytes:
    """The bytes behind a URL, at most as many as may be read from a sandbox.

    Raises:
        UsageError: they cannot be had, or are too many.
    """
    return await in_stoppable_thread(_download, url, read_file_limit())


def _download(url: str, limit: int, stop: threading.Event) -> bytes:
    # In a thread: the generators of httpx that are left in the middle are not closed on trio.
    import httpx  # at first use: it takes a tenth of a second to load

    data = bytearray()
    try:
        with (
            httpx.Client(follow_redirects=True, timeout=DOWNLOAD_TIMEOUT) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            for piece in response.iter_bytes():
                data += piece
                if len(data) > limit:
                    raise UsageError(f"{url} is larger than {readable(limit)}")
                if stop.is_set():
                    break
    except httpx.HTTPError as error:
        raise UsageError(f"{url} cannot be downloaded: {error or type(error).__name__}") from error
    return bytes(data)


async def run_setup(script: str, environment: SandboxEnvironment, name: str, folders: Sequence[Path]) -> None:
    """Run a sample's setup script in its default environment.

    Args:
        script: the script, or a content as files have it. Without a first line that names its interpreter it is
            bash's. name: for its file, unique.

    Raises:
        SetupFailed: it ended with another code than 0, or took longer than 300 s.
    """
    data = b"".join([await read(source) for _, source in await contents(script, folders)])
    path = f"/tmp/setup-{name}"  # noqa: S108 - in the sandbox
    timeout = setup_timeout()
    await environment.write_file(path, data)
    try:
        result = await environment.exec([*interpreter(data), path], timeout=timeout, timeout_retry=False)
    except TimeoutError as error:
        raise SetupFailed(f"the sample's setup script took longer than {timeout:g} s") from error
    if not result.success:
        said = (result.stderr or result.stdout).strip()[-2_000:]
        raise SetupFailed(f"the sample's setup script ended with code {result.returncode}: {said}")
    await environment.exec(["rm", "-f", path], timeout=timeout)


def setup_timeout() -> int:
    """Seconds that a setup script may take: ``PROCTOR_SANDBOX_SETUP_TIMEOUT``, then ``INSPECT_SANDBOX_SETUP_TIMEOUT``.

    Raises:
        OptionError: the environment holds a value that is refused.
    """
    for variable in ("PROCTOR_SANDBOX_SETUP_TIMEOUT", "INSPECT_SANDBOX_SETUP_TIMEOUT"):
        if (value := environ(variable)) is not None:
            return whole_number(value, option=variable, source="environment")
    return SETUP_TIMEOUT


def interpreter(script: bytes) -> list[str]:
    """The command that runs a script, from its first line; it needs no permission to be executed then."""
    first = script.split(b"\n", 1)[0].strip()
    if not first.startswith(b"#!"):
        return ["bash"]
    # The kernel gives an interpreter at most one argument (execve(2)).
    return first[2:].decode(errors="replace").strip().split(None, 1)


def _find(content: str, folders: tuple[Path, ...]) -> Path | None:
    if not content or "\n" in content or "\0" in content or len(content.encode()) > LONGEST_PATH:
        return None
    for folder in (*folders, Path.cwd()):
        try:
            path = folder / content
            if path.exists():
                return path
        except (OSError, ValueError):
            return None
    return None


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
