"""The one door to HTTP: a client for one base URL, on our transport, with errors that say what to do.

`httpx` is imported here and in `transport`, at first use. Where the environment names a proxy for the URL, httpx's
own transport serves (a proxy is a CONNECT, authentication and a second TLS layer that ours does not speak).
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
from attrs import define, field, frozen

from proctor.errors import ModelError, TransientModelError, UsageError
from proctor.model.exchange import responded
from proctor.model.failures import Unreachable, redact
from proctor.model.socketstream import Address, Connector, connect, interleave
from proctor.runtime import current_runtime
from proctor.runtime.settings import environ

if TYPE_CHECKING:
    import httpx

    from proctor.model.transport import Transport

Environ = Callable[[str], str | None]

CONNECT_TIMEOUT: Final = 30.0  # seconds; the attempt's own timeout bounds the rest
CLOSE_BOUND: Final = 1.0  # seconds a close may take in its shield
FINISH_BOUND: Final = 0.5  # seconds that the end of a stream may lag behind its last event
MAX_READ: Final = 512 * 1024 * 1024  # bytes of a body
CHECK_URL: Final = "Check the base URL (--model-base-url, base_url= or the provider's …_BASE_URL variable)."


@frozen
class HttpResponse:
    """A whole response.

    Attributes:
        headers: by name, in any case. body: decoded from its content encoding.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@define(eq=False)
class HttpStream:
    """A response whose body is read as it comes: an async iterator of its parts, to be used within its block.

    Attributes:
        headers: by name, in any case.
    """

    status: int
    headers: Mapping[str, str]
    _chunks: AsyncIterator[bytes]
    _client: HttpClient
    _idle: float | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        import httpx

        try:
            if self._idle is None:
                return await anext(self._chunks)
            with anyio.CancelScope(deadline=anyio.current_time() + self._idle):
                return await anext(self._chunks)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._client._failure(error) from error
        raise TransientModelError(
            f"{public_url(self._client.base_url)}: nothing more came for {self._idle:g} s (stream_idle_timeout)"
        )

    async def read(self) -> bytes:
        """The rest of the body.

        Raises:
            ModelError: it is too large. TransientModelError: the connection broke.
        """
        parts: list[bytes] = []
        size = 0
        async for part in self:
            parts.append(part)
            size += len(part)
            if size > MAX_READ:
                raise ModelError(f"{public_url(self._client.base_url)}: the answer is larger than {MAX_READ >> 20} MiB")
        return b"".join(parts)

    async def finish(self) -> None:
        """Read to the end of a body of which nothing more is wanted, so that its connection can be used again.

        A server that does not end it within a moment has it closed.
        """
        with anyio.move_on_after(FINISH_BOUND), suppress(TransientModelError):
            async for _ in self:
                pass


@define(eq=False)
class HttpClient:
    """Requests to one base URL with the same headers. Made by `open_client`; close it with `aclose`.

    Attributes:
        base_url: without a slash at its end. secrets: texts that no error may hold.
    """

    base_url: str
    secrets: tuple[str, ...]
    transport: Transport | None
    _client: httpx.AsyncClient
    _headers: list[tuple[bytes, bytes]]
    _urls: dict[str, httpx.URL] = field(factory=dict, init=False)

    async def post(self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send a JSON body; the response comes back whole, and closed, whatever its status.

        Args:
            path: after the base URL, starting with a slash.
            headers: added to the client's own, or in place of them.

        Raises:
            Unreachable: there was no connection. TransientModelError: it broke or timed out.
        """
        import httpx

        request = self._request(path, body, headers, {"whole": True})
        try:
            response = await self._client.send(request)
        except (httpx.TransportError, httpx.DecodingError, httpx.TooManyRedirects) as error:
            raise self._failure(error) from error
        responded(response.status_code, response.headers)
        return HttpResponse(response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None, idle: float | None = None
    ) -> AsyncIterator[HttpStream]:
        """Send a JSON body; the response's body is read as it comes, and closed with the block.

        Args:
            path: after the base URL, starting with a slash. headers: added to the client's own, or in place of them.
            idle: the most seconds between two parts of the body.

        Raises:
            Unreachable: there was no connection. TransientModelError: it broke or timed out, here or in the block.
        """
        import httpx

        given = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **(headers or {})}
        try:
            response = await self._client.send(self._request(path, body, given, {}), stream=True)
        except (httpx.TransportError, httpx.TooManyRedirects) as error:
            raise self._failure(error) from error
        responded(response.status_code, response.headers)
        raw = response.extensions.get("raw_body")
        encoded = "content-encoding" in response.headers  # against what was asked for
        chunks = response.aiter_bytes() if raw is None or encoded else aiter(raw)
        try:
            yield HttpStream(response.status_code, response.headers, chunks, self, idle)
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_BOUND):
                if isinstance(chunks, AsyncGenerator):
                    await chunks.aclose()
                await response.aclose()

    async def aclose(self) -> None:
        """Close idle connections; those in use close with their request."""
        await self._client.aclose()

    def _request(
        self, path: str, body: bytes, headers: Mapping[str, str] | None, extensions: dict[str, Any]
    ) -> httpx.Request:
        import httpx

        given = [*self._headers, (b"Content-Length", b"%d" % len(body))]
        if headers:
            extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
            names = {name.lower() for name, _ in extra}
            given = [(name, value) for name, value in given if name.lower() not in names] + extra
        return httpx.Request(
            "POST", self._url(path), headers=given, stream=httpx.ByteStream(body), extensions=extensions
        )

    def _url(self, path: str) -> httpx.URL:
        url = self._urls.get(path)
        if url is None:
            import httpx

            url = self._urls[path] = httpx.URL(self.base_url + path)
        return url

    def _failure(self, error: Exception) -> ModelError:
        import httpx

        shown = public_url(self.base_url)
        words = redact(str(error) or type(error).__name__, self.secrets)
        if isinstance(error, httpx.ProxyError):
            return TransientModelError(f"the proxy for {shown} failed: {words}")
        if isinstance(error, httpx.ConnectError):
            return connect_failure(error, shown, words)
        if isinstance(error, httpx.TimeoutException):
            return TransientModelError(f"{shown}: {words}")
        if isinstance(error, httpx.TooManyRedirects | httpx.UnsupportedProtocol):
            return ModelError(f"{shown}: {words}. {CHECK_URL}")
        return TransientModelError(f"{shown}: {words}")


def connect_failure(error: BaseException, url: str, words: str) -> ModelError:
    """The error for a connection that was not made: what it ran into, and what to do."""
    cause = _cause(error)
    host = urlsplit(url).hostname or url
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unreachable(
            f"the certificate of {url} is not trusted: {cause.verify_message}. "
            "Set SSL_CERT_FILE to the certificate of its authority."
        )
    if isinstance(cause, ssl.SSLError) or words.startswith("TLS:"):
        return Unreachable(f"no TLS connection to {url}: {words.removeprefix('TLS: ')}. Is it http:// rather?")
    if isinstance(cause, socket.gaierror):
        return Unreachable(f"the host {host} of {url} has no address ({cause.strerror or words}). {CHECK_URL}")
    code = cause.errno if isinstance(cause, OSError) else None
    if code in {errno.EMFILE, errno.ENFILE}:
        return TransientModelError(
            f"no connection to {url}: too many open files. Raise the limit (ulimit -n) or lower max_connections."
        )
    if code == errno.ECONNREFUSED:
        return Unreachable(f"connection to {url} refused: nothing listens there. Is the server running? {CHECK_URL}")
    return Unreachable(f"no connection to {url}: {words}. {CHECK_URL}")


def _cause(error: BaseException) -> BaseException | None:
    """The operating system's or TLS's error beneath an exception."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__cause__ or seen.__context__
    return seen


def open_client(
    base_url: str,
    *,
    headers: Mapping[str, str],
    secrets: Collection[str] = (),
    connect: Connector | None = None,
    environ: Environ = environ,
) -> HttpClient:
    """A client for one base URL, to be used and closed in the running loop.

    Args:
        base_url: with http:// or https://.
        headers: sent with every request, beside those that JSON needs.
        secrets: keys among them.
        connect: opens byte streams, for tests; default real sockets.
        environ: reads the environment.

    Raises:
        UsageError: the base URL is not one.
    """
    import httpx

    from proctor.model.transport import Transport

    base_url = base_url.rstrip("/")
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"base URL {public_url(base_url)!r}: it must start with http:// or https:// and name a host")

    proxy = proxy_for(base_url, environ)
    own: Transport | None = None
    transport: httpx.AsyncBaseTransport
    if proxy is None:
        own = transport = Transport(ssl_context=lambda: ssl_context(environ), connect=connect or _connect_in_runtime)
    else:
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        transport = httpx.AsyncHTTPTransport(
            proxy=httpx.Proxy(proxy), verify=ssl_context(environ), limits=unlimited, trust_env=False
        )
    client = _client_class()(
        transport=transport,
        trust_env=False,
        follow_redirects=True,
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
    )
    return HttpClient(base_url, tuple(secrets), own, client, _ready_headers(parts.netloc, headers))


@functools.cache
def _client_class() -> type[httpx.AsyncClient]:
    """httpx's client without a cookie jar: no model API uses cookies, and looking for them costs 50 µs a response."""
    import httpx

    class NoCookies(httpx.Cookies):
        def extract_cookies(self, response: httpx.Response) -> None:
            """Take none."""

    none = NoCookies()

    class Client(httpx.AsyncClient):
        @property
        def cookies(self) -> httpx.Cookies:
            return none

        @cookies.setter
        def cookies(self, cookies: Any) -> None:
            raise NotImplementedError

    return Client


def _ready_headers(netloc: str, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    ready = {
        "Host": netloc.rpartition("@")[2],
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        "Content-Type": "application/json",
        "User-Agent": "proctor",
        **headers,
    }
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in ready.items()]


async def _connect_in_runtime(host: str, port: int) -> Any:
    return await connect(host, port, resolver=_resolve_in_thread)


async def _resolve_in_thread(host: str, port: int) -> Sequence[Address]:
    """Addresses by the system's resolver, in a thread of the runtime's.

    On asyncio a thread of the loop's own pool would hold the exit of the process for as long as a dead resolver
    takes; the runtime's are daemons.
    """
    from proctor.model import socketstream

    runtime = current_runtime()
    if runtime is None or _is_address(host):
        return await socketstream.resolve(host, port)
    found = await runtime.to_thread(_addresses, host, port)
    if isinstance(found, OSError):
        raise found
    return interleave(found)


def _addresses(host: str, port: int) -> Any:
    """The addresses, or the error as a value: of a call whose caller has left, an error would be told of as a fault."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def ssl_context(environ: Environ = environ) -> ssl.SSLContext:
    """A client's TLS context: ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, else the authorities that certifi lists.

    Raises:
        UsageError: what the environment names cannot be read.
    """
    file, folder = environ("SSL_CERT_FILE"), environ("SSL_CERT_DIR")
    if file is None and folder is None:
        import certifi

        file = certifi.where()
    try:
        context = ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"certificates (SSL_CERT_FILE={file}, SSL_CERT_DIR={folder}): {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def proxy_for(url: str, environ: Environ = environ) -> str | None:
    """The proxy that the environment names for a URL: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``.

    Names in lower case go first, as everywhere; a proxy without a scheme is http. No proxy can reach this machine's
    loopback, so it is never asked to.
    """
    parts = urlsplit(url)
    host, scheme = parts.hostname or "", parts.scheme
    found = _either(f"{scheme}_proxy", environ) or _either("all_proxy", environ)
    if (
        found is None
        or _is_loopback(host)
        or _no_proxy(host, parts.port or (443 if scheme == "https" else 80), environ)
    ):
        return None
    return found if "://" in found else f"http://{found}"


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _either(name: str, environ: Environ) -> str | None:
    return environ(name) or environ(name.upper())


def _no_proxy(host: str, port: int, environ: Environ) -> bool:
    """Whether ``NO_PROXY`` has the host: by name, by domain, by address or network, with or without a port."""
    for entry in (_either("no_proxy", environ) or "").split(","):
        rule = entry.strip().lower()
        if rule == "*" or (rule and _covers(rule, host, port)):
            return True
    return False


def _covers(rule: str, host: str, port: int) -> bool:
    name, _, wanted = rule.rpartition(":")
    if name and wanted.isdigit() and ":" not in name:
        if int(wanted) != port:
            return False
        rule = name
    rule = rule.strip("[]").lstrip("*").lstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def public_url(url: str) -> str:
    """A URL as it may be shown and logged: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
