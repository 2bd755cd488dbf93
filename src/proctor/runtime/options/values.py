"""Values written on a command line or in an environment variable, made into Python values.

`value` reads what `-T`, `-M` and `--metadata` take: the scalars and flow collections of YAML 1.1 as people use them
on a command line, plus comma lists. Not PyYAML: it is slow to import, and it reads ``010`` as 8, ``1:30`` as 90 and
``2024-01-01`` as a date, which no one means there; these stay text. Text can be forced with quotes: ``-T id='"12"'``.

The other functions each read one form and raise `ValueError` whose text completes "must be …".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from proctor.runtime.tokens import EXAMPLES, TokenLimit, parse_token_limit

WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("null", "~", ""), None),
    ".nan": math.nan,
}
WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
HEX: Final = re.compile(r"[-+]?0x[0-9a-fA-F]+")
REAL: Final = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
INFINITE: Final = re.compile(r"([-+]?)\.(inf|Inf|INF)")
SIZES: Final = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
DEEPEST: Final = 100


def value(text: str) -> Any:
    """The value that `text` stands for: a number, a truth value, None, text, a list or a dict.

    ``[1, two]`` and ``{a: 1, "b": [true]}`` are collections; ``a,b`` is a list; quotes make text.

    Raises:
        ValueError: brackets or quotes that do not match.
    """
    stripped = text.strip()
    if stripped.startswith(("[", "{", '"', "'")):
        return _Flow(stripped).read()
    if "," in text:
        return [scalar(part.strip()) for part in text.split(",")]
    return scalar(stripped)


def scalar(text: str) -> Any:
    """A number, a truth value, None, or the text itself."""
    # YAML's words are written in lower case, in capitals or capitalized; "yEs" is a text.
    if text in {text.lower(), text.upper(), text.capitalize()} and text.lower() in WORDS:
        return WORDS[text.lower()]
    if WHOLE.fullmatch(text):
        return int(text)
    if HEX.fullmatch(text):
        return int(text, 16)
    if REAL.fullmatch(text):
        return float(text)
    if infinite := INFINITE.fullmatch(text):
        return -math.inf if infinite[1] == "-" else math.inf
    return text


def pairs(texts: Iterable[str]) -> dict[str, Any]:
    """``name=value`` items as a dict; dashes in a name are underscores.

    Raises:
        ValueError: an item without ``=`` or without a name, or a value that cannot be read.
    """
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError("name=value")
        try:
            out[name] = value(written)
        except ValueError as error:
            raise ValueError(f"name=value with a value that can be read ({error})") from None
    return out


def whole(least: int | None = None) -> Callable[[str], int]:
    """Reads a whole number of at least `least`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\s*[-+]?[0-9]+\s*", text) or (least is not None and int(text) < least):
            raise ValueError("a whole number" if least is None else f"a whole number of at least {least}")
        return int(text)

    return read


def real(text: str) -> float:
    """A finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a number")
    return number


def positive(text: str) -> float:
    """A finite number above 0, an int where it is written as one."""
    wanted = "a number above 0"
    try:
        number = real(text)
    except ValueError:
        raise ValueError(wanted) from None
    if number <= 0:
        raise ValueError(wanted)
    return int(text) if re.fullmatch(r"\s*\+?[0-9]+\s*", text) else number


def count(text: str) -> int:
    """A whole number above 0, which may end in k, m or b: ``500k``."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmbKMB]?)\s*", text)
    number = float(match[1]) * SIZES.get(match[2].lower(), 1) if match else 0.0
    if number < 1 or number != int(number):
        raise ValueError("a whole number of at least 1, such as 5000, 500k or 1m")
    return int(number)


def tokens(text: str) -> int | TokenLimit:
    """A limit on tokens: ``500k``, or with what counts before it, ``output:100k``."""
    try:
        limit = parse_token_limit(text)
    except ValueError as error:
        raise ValueError(f"a number of at least 1, {EXAMPLES} ({error})") from None
    if (limit.tokens if isinstance(limit, TokenLimit) else limit) < 1:
        raise ValueError(f"a number of at least 1, {EXAMPLES}")
    return limit


def rate(text: str) -> float:
    """A number of at least 0, which may end in k, m or b: ``90k``."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmbKMB]?)\s*", text)
    if match is None:
        raise ValueError("a number of at least 0, such as 500, 90k or 1m")
    number = float(match[1]) * SIZES.get(match[2].lower(), 1)
    return int(number) if number == int(number) else number


def truth(text: str) -> bool:
    """true or false, and what YAML takes for them."""
    word = text.strip().lower()
    if word in {"true", "yes", "on", "1"}:
        return True
    if word in {"false", "no", "off", "0"}:
        return False
    raise ValueError("true or false")


def lifetime(text: str) -> str:
    """A number and a unit of time, as ``12h``; s, m, h, D, W, M or Y."""
    if not re.fullmatch(r"[1-9]\d*[smhDWMYdwy]", text.strip()):
        raise ValueError
    return text.strip()


def truth_or(read: Callable[[str], Any], wanted: str) -> Callable[[str], Any]:
    """Reads ``true``, ``false`` or what `read` takes."""

    def either(text: str) -> Any:
        if text.strip().lower() in {"true", "yes", "on", "false", "no", "off"}:
            return truth(text)
        try:
            return read(text)
        except ValueError:
            raise ValueError(wanted) from None

    return either


def sample_range(text: str) -> int | tuple[int, int]:
    """``10`` is the first ten samples; ``11-20`` those numbered so, counted from 1."""
    match = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if first < 1 or last < first:
        raise ValueError("a number of samples (10) or a range of them counted from 1 (11-20)")
    return first if match is None or match[2] is None else (first - 1, last)


def words(text: str) -> list[str]:
    """A comma list of texts, empty ones left out."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError("at least one name, several with commas between them")
    return found


def one_of(*allowed: str) -> Callable[[str], str]:
    """Reads one of some words."""

    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return word

    return read


def mapping(text: str) -> dict[str, Any]:
    """A JSON or YAML mapping in braces."""
    wanted = 'a mapping such as {"name": "value"}'
    try:
        found = value(text)
    except ValueError as error:
        raise ValueError(f"{wanted} ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(wanted)
    return found


def token_biases(text: str) -> dict[int, float]:
    """``42=10,43=-10``: numbers of tokens and their biases."""
    out: dict[int, float] = {}
    for part in words(text):
        token, equals, bias = part.partition("=")
        try:
            out[int(token)] = float(bias)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError("a list of token=bias, such as 42=10,43=-10")
    return out


class _Flow:
    """Reads one flow collection or quoted text: JSON, and YAML's with plain words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> Any:
        found = self._item(0)
        self._space()
        if self._at < len(self._text):
            raise ValueError(f"{self._text[self._at :]!r} follows a complete value")
        return found

    def _item(self, depth: int, ends: str = "") -> Any:
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")
        self._space()
        start = self._text[self._at : self._at + 1]
        if start == "[":
            return self._list(depth)
        if start == "{":
            return self._dict(depth)
        if start == '"':
            return self._json_text()
        if start == "'":
            return self._single_quoted()
        return self._plain(ends)

    def _list(self, depth: int) -> list[Any]:
        out: list[Any] = []
        self._at += 1
        while not self._skip("]"):
            out.append(self._item(depth + 1, ",]"))
            if not self._skip(",") and self._peek() != "]":
                raise ValueError("a list in [ ] is not closed")
        return out

    def _dict(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        self._at += 1
        while not self._skip("}"):
            key = self._item(depth + 1, ":,}")
            if not self._skip(":"):
                raise ValueError("a mapping in { } needs name: value; text in braces needs quotes around it")
            out[str(key)] = self._item(depth + 1, ",}")
            if not self._skip(",") and self._peek() != "}":
                raise ValueError("a mapping in { } is not closed")
        return out

    def _json_text(self) -> str:
        try:
            found, self._at = json.JSONDecoder(strict=False).raw_decode(self._text, self._at)
        except json.JSONDecodeError:
            raise ValueError("a text in double quotes is not closed, or has a wrong escape") from None
        return str(found)

    def _single_quoted(self) -> str:
        match = re.compile(r"'((?:[^']|'')*)'").match(self._text, self._at)
        if match is None:
            raise ValueError("a text in single quotes is not closed")
        self._at = match.end()
        return match[1].replace("''", "'")

    def _plain(self, ends: str) -> Any:
        # As in YAML, a colon inside a word (a URL, a time) belongs to it unless a space or an end follows.
        start = self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            follows = self._text[self._at + 1 : self._at + 2]
            if char in ends and (char != ":" or not follows or follows in " \t\n,[]{}\"'"):
                break
            self._at += 1
        return scalar(self._text[start : self._at].strip())

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _peek(self) -> str:
        self._space()
        return self._text[self._at : self._at + 1]

    def _skip(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self._at += 1
        return True
