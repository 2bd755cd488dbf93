"""Images, audio and documents of a message as data that a request can carry."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.errors import UsageError
from proctor.runtime import current_runtime


async def as_url(reference: str, *, mime_type: str | None = None) -> str:
    """A URL for an image or the like: http(s) and data URLs as they are, a file as a data URL.

    Raises:
        UsageError: the file cannot be read.
    """
    if reference.startswith(("http://", "https://", "data:")):
        return reference
    path = Path(reference.removeprefix("file://"))
    runtime = current_runtime()
    read = anyio.to_thread.run_sync if runtime is None else runtime.to_thread
    try:
        data = await read(path.read_bytes)
    except OSError as error:
        raise UsageError(f"a message names the file {reference}, which cannot be read: {error.strerror}") from error
    kind = mime_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def base64_of(url: str) -> str:
    """The base64 text of a data URL.

    Raises:
        UsageError: it is another kind of URL.
    """
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise UsageError(f"{url[:60]}: here a file or a base64 data URL is needed")
    return data
