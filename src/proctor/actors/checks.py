"""One wording for values that are refused."""

from __future__ import annotations

from proctor.errors import OptionError


def check(owner: str, option: str, value: object, good: bool, wanted: str) -> None:
    """Raise OptionError unless `good`: `owner` says whose option it is, `wanted` what it must be."""
    if not good:
        raise OptionError(f"{owner}: {option}={value!r} must be {wanted}")


def check_name(owner: str, name: str) -> None:
    """Raise OptionError unless `name` can be one part of an address."""
    good = bool(name) and "/" not in name
    check(owner, "name", name, good, "a non-empty text without '/', which separates the parts of an address")
