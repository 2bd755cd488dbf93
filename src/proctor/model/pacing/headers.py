"""Reading quota headers: whatever a vendor's spelling, a list of `QuotaReading`.

Spellings that were seen (and who uses them):

- ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, resets like ``6m0s``, ``12ms`` or plain seconds (OpenAI,
  Azure, Groq and what is compatible with them); a period at the end of the name where it is not a minute
  (``…-requests-day``, Cerebras), or of its own (``x-ratelimit-renewalperiod-requests``, Azure);
- ``x-ratelimit-{limit,remaining}-{req,tokens}-minute`` without a reset, and before that
  ``x-ratelimitbysize-{limit,remaining}-minute`` (Mistral);
- ``anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}``, resets as dates;
- ``RateLimit`` and ``RateLimit-Policy`` of the IETF's httpapi working group, in the spellings of several drafts.

A limit that is not above 0, or that comes without what remains of it, says nothing (Azure sends −1 and 0). The period
of a limit is nowhere said by some who use a day: their reset is the time until all of it is back, from which the
period follows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from proctor.model.pacing.values import Dimension, QuotaReading

MINUTE: Final = 60.0
DAY: Final = 86400.0
PERIODS: Final[Mapping[str, float]] = {"second": 1.0, "minute": MINUTE, "hour": 3600.0, "day": DAY}
KINDS: Final[Mapping[str, Dimension]] = {
    "requests": Dimension.REQUESTS,
    "req": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT_TOKENS,
    "output-tokens": Dimension.OUTPUT_TOKENS,
}
PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")
SECONDS: Final[Mapping[str, float]] = {
    "d": DAY, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
}  # fmt: skip
FIELD: Final = re.compile(r"x-ratelimit-limit-(input-tokens|output-tokens|tokens|requests|req)(?:-(\w+))?")
ANTHROPIC: Final = "anthropic-ratelimit-"
MEMBER: Final = re.compile(
    r'(?:"[^"]*"\s*;\s*)*"(?P<name>[^"]*)"(?P<parameters>(?:\s*;\s*[a-z]+\s*=\s*(?:"[^"]*"|[^,;]+))*)'
)
PARAMETER: Final = re.compile(r'([a-z]+)\s*=\s*"?([^",;]+)"?', re.IGNORECASE)
NAMED: Final = (
    (re.compile(r"input[ _-]tokens", re.IGNORECASE), Dimension.INPUT_TOKENS),
    (re.compile(r"output[ _-]tokens", re.IGNORECASE), Dimension.OUTPUT_TOKENS),
    (re.compile(r"\bTPM\b|tokens? per|token rate limit|token limit", re.IGNORECASE), Dimension.TOKENS),
    (re.compile(r"\bRPM\b|requests? per|request rate limit", re.IGNORECASE), Dimension.REQUESTS),
    (re.compile(r"concurren", re.IGNORECASE), Dimension.CONCURRENCY),
)


def quota_readings(headers: Mapping[str, str], *, now: datetime | None = None) -> list[QuotaReading]:
    """What the headers of a response say of quotas.

    Args:
        headers: of the response, names in any case.
        now: the wall clock, for resets that are dates; the response's own ``date`` goes before it.
    """
    found = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    if not found:
        return []
    said = next((value for name, value in headers.items() if name.lower() == "date"), None)
    clock = _date(said) or now
    readings = [*_anthropic(found, clock), *_by_kind(found), *_by_size(found), *_structured(found)]
    return [reading for reading in readings if reading.limit > 0 and reading.remaining >= 0]


def named_dimension(text: str) -> Dimension | None:
    """The limit that the text of a refusal names, None if it names none or several."""
    named = {dimension for pattern, dimension in NAMED if pattern.search(text)}
    if named & {Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS}:
        named.discard(Dimension.TOKENS)  # "output tokens per minute" holds "tokens per"
    return named.pop() if len(named) == 1 else None


def seconds(text: str | None) -> float | None:
    """A duration such as ``1s``, ``6m0s``, ``12ms`` or ``55`` (seconds); None if it is none."""
    if text is None:
        return None
    text = text.strip()
    number = _number(text)
    if number is not None:
        return number if number >= 0 else None
    parts = PART.findall(text)
    if not parts or "".join(size + unit for size, unit in parts) != text:
        return None
    return sum(float(size) * SECONDS[unit] for size, unit in parts)


def _by_kind(found: Mapping[str, str]) -> Iterator[QuotaReading]:
    for name, value in found.items():
        matched = FIELD.fullmatch(name)
        if matched is None:
            continue
        kind, period = matched.groups()
        tail = kind if period is None else f"{kind}-{period}"
        limit, remaining = _number(value), _number(found.get(f"x-ratelimit-remaining-{tail}"))
        if limit is None or remaining is None:
            continue
        reset = seconds(found.get(f"x-ratelimit-reset-{tail}"))
        window = PERIODS.get(period) if period is not None else seconds(found.get(f"x-ratelimit-renewalperiod-{tail}"))
        if period is not None and window is None:
            continue  # a month, or something else that is no pace
        yield QuotaReading(KINDS[kind], limit, remaining, reset, window or _period(limit, remaining, reset))


def _period(limit: float, remaining: float, reset: float | None) -> float:
    """A minute, or a day if it would take that long until all is back."""
    if reset is None or limit <= remaining:
        return MINUTE
    return DAY if reset * limit / (limit - remaining) > math.sqrt(MINUTE * DAY) else MINUTE


def _by_size(found: Mapping[str, str]) -> Iterator[QuotaReading]:
    limit = _number(found.get("x-ratelimitbysize-limit-minute"))
    remaining = _number(found.get("x-ratelimitbysize-remaining-minute"))
    if limit is not None and remaining is not None:
        yield QuotaReading(Dimension.TOKENS, limit, remaining, seconds(found.get("ratelimitbysize-reset")))


def _anthropic(found: Mapping[str, str], now: datetime | None) -> Iterator[QuotaReading]:
    limits: dict[str, float] = {}
    for kind in ("requests", "input-tokens", "output-tokens", "tokens"):
        limit = _number(found.get(f"{ANTHROPIC}{kind}-limit"))
        remaining = _number(found.get(f"{ANTHROPIC}{kind}-remaining"))
        if limit is None or remaining is None:
            continue
        limits[kind] = limit
        if kind == "tokens" and limit == limits.get("input-tokens", 0.0) + limits.get("output-tokens", 0.0):
            continue  # the sum of the two above, no limit of its own
        until = _iso(found.get(f"{ANTHROPIC}{kind}-reset"))
        reset = None if until is None or now is None else max(0.0, (until - now).total_seconds())
        yield QuotaReading(KINDS[kind], limit, remaining, reset)


def _structured(found: Mapping[str, str]) -> Iterator[QuotaReading]:
    """The drafts of ``RateLimit``: members with parameters, one list of three, or three fields."""
    policies = found.get("ratelimit-policy", "")
    current = found.get("ratelimit", "")
    if '"' in current:
        yield from _members(current, policies)
        return
    old = {key.lower(): value for key, value in PARAMETER.findall(current)}
    limit = _number(old.get("limit", found.get("ratelimit-limit", "").partition(",")[0]))
    remaining = _number(old.get("remaining", found.get("ratelimit-remaining")))
    reset = seconds(old.get("reset", found.get("ratelimit-reset")))
    if limit is None or remaining is None:
        return
    windows = re.findall(r"\bw\s*=\s*(\d+)", policies or found.get("ratelimit-limit", ""))
    window = float(windows[0]) if len(windows) == 1 else MINUTE
    yield QuotaReading(Dimension.REQUESTS, limit, remaining, reset, window or MINUTE)


def _members(current: str, policies: str) -> Iterator[QuotaReading]:
    known = dict(_parsed(policies))
    for name, parameters in _parsed(current):
        policy = known.get(name, {})
        dimension = _unit(policy.get("qu", "requests"))
        limit, remaining = _number(policy.get("q")), _number(parameters.get("r"))
        if dimension is None or limit is None or remaining is None:
            continue
        window = _number(policy.get("w")) or MINUTE
        yield QuotaReading(dimension, limit, remaining, seconds(parameters.get("t")), window)


def _parsed(field: str) -> Iterator[tuple[str, dict[str, str]]]:
    for member in MEMBER.finditer(field):
        yield member["name"], {key.lower(): value.strip() for key, value in PARAMETER.findall(member["parameters"])}


def _unit(unit: str) -> Dimension | None:
    return KINDS.get(unit.lower().replace("_", "-").replace(" ", "-"))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _iso(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)
