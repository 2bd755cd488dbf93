"""A bucket of S3, or of what speaks its protocol: whole objects in, ranges of bytes out.

Everything here blocks and belongs in a thread: the library below (obstore) is native only to asyncio, in a thread it
serves both event loops. What it raises becomes an `OSError` that says what the storage answered, because that is what
the code of logs expects of a disk. An object is put whole or not at all, by one request or by a multipart upload that
the storage completes at its end.
"""

from __future__ import annotations

import configparser
import errno
import re
import tempfile
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

from attrs import define, frozen

from proctor.errors import LogError
from proctor.runtime.settings import environ

PART: Final = 8 * 2**20
"""Bytes of one part of a multipart upload; shorter objects are put by one request. S3 asks for 5 MiB at least, and
allows 10,000 parts: 80 GB."""
AT_ONCE: Final = 2
"""Parts that are on their way at the same time."""
TIMEOUT: Final = "60s"
CONNECT_TIMEOUT: Final = "5s"
RETRIES: Final = 3
RETRY_SECONDS: Final = 20.0
"""Requests that are tried again by the library itself: so often, for so long."""

_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_VARIABLES: Final = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}


@frozen
class Stored:
    """An object of a bucket.

    Attributes:
        size: in bytes. mtime: seconds since 1970. etag: changes with its content.
    """

    key: str
    size: int
    mtime: float
    etag: str


class NoBucket(OSError):
    """There is no bucket of this name."""


class NoRanges(OSError):
    """The storage answers with whole objects only."""


class Changed(OSError):
    """The object is another one than when it was first looked at."""


def endpoint() -> str | None:
    """The URL of the storage: ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``; None for that of Amazon."""
    return next((value for name in _VARIABLES["endpoint"] if (value := environ(name)) is not None), None)


@define(eq=False)
class Bucket:
    """A bucket, with the credentials and the endpoint that the usual AWS variables and files name."""

    name: str
    _store: Any
    _library: Any

    @classmethod
    def open(cls, name: str) -> Bucket:
        """Make a client; nothing is asked of the storage.

        Raises:
            LogError: obstore is not installed, or the settings are wrong.
        """
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise LogError(
                f"s3://{name}: this needs the package obstore, which is not installed: pip install 'proctor[s3]'"
            ) from None
        config = _settings()
        options = {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT}
        if config.get("endpoint", "").startswith("http://"):
            options["allow_http"] = True  # type: ignore[assignment]  # the value of this one is a bool
        retry: Any = {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            "backoff": {
                "base": 2,
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=5),
            },
        }
        given: Any = {"config": config, "client_options": options, "retry_config": retry}
        try:
            store = S3Store(name, **given)
        except Exception as error:
            raise LogError(f"s3://{name}: the storage cannot be set up: {_reason(error)}") from None
        return cls(name, store, obstore)

    def put(self, key: str, data: bytes | Iterable[bytes], size: int) -> str:
        """Put an object in place of what is there, whole or not at all.

        Args:
            size: of the data, in bytes.

        Returns:
            Its etag.
        """
        with _told(self.name, key):
            if size <= PART:
                whole = data if isinstance(data, bytes) else b"".join(data)
                found = self._library.put(self._store, key, whole, use_multipart=False)
            else:
                parts = iter([data]) if isinstance(data, bytes) else iter(data)
                found = self._library.put(self._store, key, parts, chunk_size=PART, max_concurrency=AT_ONCE)
            return _etag(found)

    def head(self, key: str) -> Stored:
        """What is known of an object.

        Raises:
            FileNotFoundError: there is none.
        """
        with _told(self.name, key):
            return _stored(self._library.head(self._store, key))

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Some bytes of an object.

        Raises:
            NoRanges: the storage cannot give a part. Changed: the object is no longer that of `etag`.
        """
        with _told(self.name, key):
            options = {"range": (start, end), "if_match": f'"{etag}"'}
            found = self._library.get(self._store, key, options=options)
            if _etag(found.meta) != etag:
                raise Changed(errno.ESTALE, "it was replaced while it was read")
            return bytes(found.bytes())

    def download(self, key: str, into: IO[bytes]) -> str:
        """Write a whole object into a file, piece by piece; returns its etag."""
        with _told(self.name, key):
            found = self._library.get(self._store, key)
            for piece in found.stream(min_chunk_size=2**20):
                into.write(piece)
            return _etag(found.meta)

    def list(self, folder: str, *, recursive: bool) -> Iterator[Stored]:
        """The objects of a folder ("" for all), and of those below it if `recursive`."""
        with _told(self.name, folder):
            if not recursive:
                yield from map(_stored, self._library.list_with_delimiter(self._store, folder or None)["objects"])
                return
            for some in self._library.list(self._store, folder or None):
                yield from map(_stored, some)

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is none the worse."""
        with _told(self.name, key):
            self._library.delete(self._store, key)


class _told:  # noqa: N801  # used like a function
    """What the library raises in the block is raised as an `OSError` with the storage's own words."""

    def __init__(self, bucket: str, key: str) -> None:
        self.place = f"s3://{bucket}/{key}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or (isinstance(error, OSError) and error.errno is not None):
            return
        if not isinstance(error, Exception) or isinstance(error, LogError):
            return
        text, reason = str(error), _reason(error)
        kinds = {each.__name__ for each in type(error).__mro__}
        if "non-partial" in text:
            raise NoRanges(errno.ENOTSUP, reason) from None
        if "PreconditionError" in kinds:
            raise Changed(errno.ESTALE, "it was replaced while it was read") from None
        if "<Code>NoSuchBucket</Code>" in text:
            raise NoBucket(errno.ENXIO, reason) from None
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, reason) from None
        if kinds & {"PermissionDeniedError", "UnauthenticatedError"}:
            raise PermissionError(errno.EACCES, reason) from None
        raise OSError(errno.EIO, reason) from None


def _reason(error: Exception) -> str:
    """What the storage said, in one line: the library's own texts hold whole answers and its structures."""
    text = str(error)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code[1]}: {message[1]}" if message is not None and message[1] else code[1]
    first = text.partition("\n")[0].strip()
    if "error sending request" in text or "HTTP error" in text:
        where = endpoint()
        return f"the storage{f' at {where}' if where else ''} cannot be reached"
    if "credential" in text.lower() or "169.254" in text:
        return "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    return first


def _etag(found: Any) -> str:
    return str(found.get("e_tag") or "").strip('"')


def _stored(found: Any) -> Stored:
    return Stored(found["path"], found["size"], found["last_modified"].timestamp(), _etag(found))


def _settings() -> dict[str, str]:
    """What the variables say, else the profile in the files of the AWS tools; the library looks further by itself."""
    config: dict[str, str] = {}
    for name, variables in _VARIABLES.items():
        value = next((found for each in variables if (found := environ(each)) is not None), None)
        if value is not None:
            config[name] = value
    keyed = "access_key_id" in config
    for name, value in _profile().items():
        if name in {"region", "endpoint"} or not keyed:
            config.setdefault(name, value)
    config.setdefault("region", "us-east-1")
    return config


def _profile() -> dict[str, str]:
    """The chosen profile of ``~/.aws/credentials`` and ``~/.aws/config``."""
    chosen = environ("AWS_PROFILE")
    if chosen is None and environ("AWS_ACCESS_KEY_ID") is not None:
        return {}
    chosen = chosen or "default"
    files = (
        (environ("AWS_SHARED_CREDENTIALS_FILE"), "credentials", chosen),
        (environ("AWS_CONFIG_FILE"), "config", chosen if chosen == "default" else f"profile {chosen}"),
    )
    found: dict[str, str] = {}
    for named, name, section in files:
        path = Path(named) if named is not None else Path.home() / ".aws" / name
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, ValueError, configparser.Error):
            continue
        if parser.has_section(section):
            said = dict(parser[section])
            for key, ours in _PROFILE.items():
                if said.get(key):
                    found.setdefault(ours, said[key])
    return found


_PROFILE: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def temporary() -> IO[bytes]:
    """A file without a name, for an object that must be had whole."""
    return tempfile.TemporaryFile("w+b")


__all__ = ["Bucket", "Changed", "NoBucket", "NoRanges", "Stored", "endpoint", "temporary"]
