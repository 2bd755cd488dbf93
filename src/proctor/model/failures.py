"""What a failed model call is: an error class for a response, the wait it asks for, and whether to try again.

Every provider's failures come down to five kinds (behaviour.md, section 3). Ours raise the errors of
`proctor.errors` themselves; a provider written elsewhere raises what its library raises, which is judged by its
``should_retry``, else by the HTTP status it carries, else by its type.
"""

from __future__ import annotations

import email.utils
import enum
import math
import re
import sys
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anyio

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.runtime.clock import utc_now

if TYPE_CHECKING:
    from proctor.model.api import ModelAPI

SHOWN: Final = 600  # characters of a provider's words that an error text holds
OVERLOADED: Final = frozenset({429, 529})  # 529: Anthropic, overloaded
TRANSIENT: Final = frozenset({408})
UNKNOWN_MODEL: Final = re.compile(
    r"\bmodel\b.*\b(not found|does ?n[o']t exist|not exist|unknown|no such|not supported)|"
    r"\b(unknown|invalid|no such|unsupported) model\b",
    re.IGNORECASE | re.DOTALL,
)
UNKNOWN_MODEL_CODES: Final = frozenset({"model_not_found", "invalid_model", "unknown_model", "not_found_error"})
OVERLOAD_CODES: Final = frozenset({"rate_limit_exceeded", "rate_limit_error", "overloaded_error", "overloaded"})


class Kind(enum.Enum):
    """What to do about a failure."""

    RATE_LIMIT = "rate limit"
    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    GIVE_UP = "give up"
    FINAL = "final"


class Unreachable(TransientModelError):
    """No connection at all: refused, unknown host, untrusted certificate. Nothing was sent.

    It is transient for a server that has answered before; for one that never has, the model is soon given up.
    """


def status_error(
    status: int, headers: Mapping[str, str], body: bytes, *, model: str, url: str, secrets: Collection[str] = ()
) -> ModelError:
    """The error for a response that is not a success.

    Args:
        model, url: named in the text. secrets: texts that must not appear in it.
    """
    words, code = error_words(body)
    words = redact(words, secrets)
    said = f"{model}: HTTP {status} from {url}" + (f": {words}" if words else "")
    wait = retry_after(headers)
    if code == "insufficient_quota":
        return ModelGivenUp(f"{said}\nThe account has no quota left; its models are given up.", status=status)
    if status in OVERLOADED or code in OVERLOAD_CODES:
        return RateLimitError(said, status=status, retry_after=wait)
    if status in TRANSIENT or status >= 500:
        return TransientModelError(said, status=status, retry_after=wait)
    if status in {401, 403}:
        hint = "The key was refused: check the key and what it may use; the model is given up."
        return ModelGivenUp(f"{said}\n{hint}", status=status)
    if status in {400, 404, 422} and (code in UNKNOWN_MODEL_CODES or UNKNOWN_MODEL.search(words)):
        return ModelGivenUp(f"{said}\nThe model is unknown there; it is given up.", status=status)
    if status in {404, 405}:
        return ModelError(f"{said}\nIs the base URL right? It usually ends in /v1.", status=status)
    return ModelError(said, status=status)


def error_words(body: bytes) -> tuple[str, str]:
    """The message and the code of an error body: the usual JSON shapes, else its text; shortened."""
    import msgspec

    try:
        data: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _short(body.decode("utf-8", "replace")), ""
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return _short(str(error)), ""
    message = next((error[key] for key in ("message", "detail", "msg") if error.get(key)), "")
    code = next((error[key] for key in ("code", "type") if isinstance(error.get(key), str)), "")
    if not message:
        message = body.decode("utf-8", "replace")
    return _short(message if isinstance(message, str) else str(message)), code


def error_codes(body: bytes) -> tuple[str, ...]:
    """Every code and type that an error body gives, the most telling first."""
    import msgspec

    try:
        data: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    found: list[str] = []
    outer = data if isinstance(data, dict) else {}
    error = outer.get("error", outer)
    for holder in (error.get("innererror") if isinstance(error, dict) else None, error, outer):
        if isinstance(holder, dict):
            found += [str(holder[key]) for key in ("code", "type", "status") if isinstance(holder.get(key), str | int)]
    return tuple(dict.fromkeys(found))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def redact(text: str, secrets: Collection[str]) -> str:
    """`text` with every secret of at least 4 characters replaced."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[key]")
    return text


def scrub(error: BaseException, secrets: Collection[str]) -> None:
    """Take secrets out of an exception's texts, which end up in logs: some servers echo the key they refuse."""
    if any(isinstance(part, str) and redact(part, secrets) != part for part in error.args):
        error.args = tuple(redact(part, secrets) if isinstance(part, str) else part for part in error.args)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait (``retry-after-ms``, then ``retry-after``: a number or a date).

    Returns:
        A positive finite number, None where nothing sensible is said. A date counts from the response's own
        ``date`` where it has one, so that a wrong clock here does not matter.
    """
    if (wait := _positive(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    said = headers.get("retry-after")
    if said is None or (wait := _positive(said)) is not None:
        return wait
    until = _date(said)
    if until is None:
        return None
    return _positive((until - (_date(headers.get("date")) or utc_now())).total_seconds())


def _positive(value: str | float | None) -> float | None:
    try:
        number = float(value or 0)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _date(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def classify(error: Exception, api: ModelAPI) -> Kind:
    """What to do about the failure of one attempt."""
    if isinstance(error, ModelError):
        return _kind_of_ours(error)
    verdict = api.should_retry(error)
    if (named := str(getattr(verdict, "kind", ""))) in {"rate_limit", "transient"}:
        return Kind.RATE_LIMIT if named == "rate_limit" else Kind.TRANSIENT
    if verdict is True or getattr(verdict, "retry", False) is True:
        return Kind.RATE_LIMIT if _status(error) in OVERLOADED else Kind.TRANSIENT
    return _kind_of_foreign(error)


def _kind_of_ours(error: ModelError) -> Kind:
    match error:
        case ModelGivenUp():
            return Kind.GIVE_UP
        case RateLimitError():
            return Kind.RATE_LIMIT
        case Unreachable():
            return Kind.UNREACHABLE
        case TransientModelError():
            return Kind.TRANSIENT
    return Kind.FINAL


def _kind_of_foreign(error: Exception) -> Kind:
    status = _status(error)
    if status is not None:
        if status in OVERLOADED:
            return Kind.RATE_LIMIT
        if status in TRANSIENT or status >= 500:
            return Kind.TRANSIENT
        return Kind.GIVE_UP if status in {401, 403} else Kind.FINAL
    broken = (ConnectionError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream)
    httpx = sys.modules.get("httpx")  # raised by a provider that uses it; not worth an import to find out
    if isinstance(error, broken) or (httpx is not None and isinstance(error, httpx.TransportError)):
        return Kind.TRANSIENT
    return Kind.FINAL


def _status(error: Exception) -> int | None:
    """The HTTP status that an exception of a client library carries."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def wait_asked(error: Exception) -> float | None:
    """The wait that a failure asks for, in seconds."""
    if isinstance(error, RateLimitError | TransientModelError):
        return error.retry_after
    headers = getattr(getattr(error, "response", None), "headers", None)
    return retry_after(headers) if isinstance(headers, Mapping) else None
