"""Text as a terminal may safely be given it, and the few formats every display shares.

Names, messages and outputs come from models, sandboxes, datasets and task files. Written as they are, an escape
sequence in one of them moves the cursor, renames the window or fills the clipboard, and a direction override makes
a line read backwards. So nothing of that kind reaches a terminal but through `printable`.

`rich` is not used here: the plain display must not pay 30 ms of imports for the width of a character.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Final

# Joiners shape emoji and several scripts; alone they move nothing.
HARMLESS_FORMATS: Final = frozenset("\u200c\u200d")
ESCAPED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
# Where a combining character (a stack of accents drawn over other lines) adds nothing to be read.
MAX_COMBINING: Final = 4


def printable(text: object, *, lines: bool = False) -> str:
    """`text` with everything a terminal would act upon shown as an escape, such as ``\\x1b``.

    Escaped are the control characters C0, DEL and C1, direction overrides and other invisible formats, line and
    paragraph separators, lone surrogates, and accents beyond four on one character.

    Args:
        text: anything; its `str` is taken.
        lines: keep line feeds, and tabs as four spaces, instead of escaping them.
    """
    source = str(text)
    if source.isascii() and source.isprintable():
        return source
    out: list[str] = []
    combining = 0
    for char in source:
        combining = combining + 1 if unicodedata.combining(char) else 0
        if lines and char in "\n\t":
            out.append(char if char == "\n" else "    ")
        elif _acted_upon(char) or combining > MAX_COMBINING:
            out.append(_escaped(char))
        else:
            out.append(char)
    return "".join(out)


def cells(text: str) -> int:
    """Columns that a terminal gives to `text`: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns: padded with spaces, or cut and ended with ``…``."""
    missing = width - cells(text)
    return text + " " * missing if missing >= 0 else cut(text, width)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, its end replaced by ``…`` when it is longer."""
    if cells(text) <= width:
        return text
    out: list[str] = []
    used = 0
    for char in text:
        used += _width(char)
        if used > width - 1:
            break
        out.append(char)
    return "".join(out) + "…" * (width > 0)


def cut_start(text: str, width: int) -> str:
    """`text` in at most `width` columns, its beginning replaced by ``…``: of long names the end tells them apart."""
    if cells(text) <= width:
        return text
    kept = len(text)
    used = 1
    while kept and used + _width(text[kept - 1]) <= width:
        kept -= 1
        used += _width(text[kept])
    return "…" * (width > 0) + text[kept:]


def duration(seconds: float, *, exact: bool = False) -> str:
    """Seconds for people: ``4s``, ``2:05``, ``1:02:05``.

    Args:
        exact: with a tenth below ten seconds: ``0.4s``.
    """
    whole = max(0, round(seconds))
    if exact and seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: int) -> str:
    """A count in at most five characters: ``950``, ``12.3k``, ``4.5M``."""
    size = float(number)
    for unit in ("", "k", "M", "G"):
        if abs(size) < 999.95 or unit == "G":
            break
        size /= 1000
    return str(number) if not unit else f"{size:.1f}{unit}"


def metric(value: object) -> str:
    """A metric's value: three decimals, more where they would all be zero, whole numbers as such."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return printable(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) >= 10:
        return str(int(value))
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"


def plural(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _acted_upon(char: str) -> bool:
    return char not in HARMLESS_FORMATS and unicodedata.category(char) in ESCAPED_CATEGORIES


def _escaped(char: str) -> str:
    code = ord(char)
    if char in SHORT:
        return SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _width(char: str) -> int:
    if unicodedata.combining(char) or char in HARMLESS_FORMATS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
