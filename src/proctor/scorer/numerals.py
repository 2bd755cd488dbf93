"""Numbers as models write them: other scripts' digits, fractions, superscripts, Chinese numerals, spaced groups.

The order of things: signs, then a single numeric character, then a trailing superscript as exponent of what is before
it (with its sign: −2² is 4), then a whole part with at most one fraction character after it.
"""

# ruff: noqa: RUF001  # characters that look alike are what this module is about

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_ENCLOSING: Final = "!?:;()[]{}'\"`"
_DECORATION: Final = re.compile(r"\\?[$,£€*_]")
_STOP: Final = re.compile(r"\.(?!\d)")
_ASCII_DIGIT: Final = re.compile("[0-9]")
_MINUS: Final = frozenset("-−﹣－负負")
_PLUS: Final = frozenset("+＋﹢正")
_POINTS: Final = frozenset(".．٫")
_GROUPING: Final = frozenset(",，﹐、٬ \u00a0\u202f\u2009\u2007\u2008'’ʼ＇")
_EXPONENT: Final = re.compile(r"(?:[⁻⁺]|(?<![⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]))[⁰¹²³⁴⁵⁶⁷⁸⁹]+$")
_SUPERSCRIPT: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

_HAN_DIGITS: Final[Mapping[str, int]] = {
    char: value
    for value, chars in enumerate(
        ("零〇○", "一壹幺", "二贰貳两兩", "三叁參", "四肆", "五伍", "六陆陸", "七柒", "八捌", "九玖")
    )
    for char in chars
}
_HAN_TENS: Final[Mapping[str, int]] = {"廿": 20, "卅": 30, "卌": 40}
_HAN_UNITS: Final[Mapping[str, int]] = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_HAN_MYRIADS: Final[Mapping[str, int]] = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_HAN_POINTS: Final = "点點"
_HAN: Final = frozenset([*_HAN_DIGITS, *_HAN_TENS, *_HAN_UNITS, *_HAN_MYRIADS, *_HAN_POINTS])


def without_decoration(text: str) -> str:
    """`text` without currency signs, thousands commas and emphasis, and without points that end a sentence."""
    return _STOP.sub("", _DECORATION.sub("", text))


def number_in(word: str, *, trim: bool = True) -> float | None:
    """The finite number that a word is; None if it is none.

    Args:
        trim: pass over quotes, brackets and sentence punctuation around it (never over signs such as < and ~).
    """
    # Nearly all words of an answer are plain ones, and searching ten times cheaper than parsing.
    if word.isascii() and _ASCII_DIGIT.search(word) is None:
        return None
    text = word.strip(_ENCLOSING) if trim else word
    try:
        number: float | None = float(text)
    except ValueError:
        number = None
    if number is None or not math.isfinite(number):
        number = _written(text)
    return number if number is not None and math.isfinite(number) else None


def canonical(number: float) -> str:
    """A number to five significant digits, the precision at which answers are compared."""
    return f"{number:.5g}"


def _written(text: str) -> float | None:
    text, negative = _sign(text.strip())
    if not text:
        return None
    value = _numeric(text)
    if value is not None:
        return -value if negative else value
    base, power = _powered(text)
    value = _mixed(base)
    if value is None:
        return None
    try:
        return float((-value if negative else value) ** int(power))
    except (ArithmeticError, ValueError):
        return None


def _powered(text: str) -> tuple[str, str]:
    """A number and the superscript after it in ASCII, 1 where there is none."""
    closed = text.rstrip("".join(_GROUPING) + " \t\r\n")
    found = _EXPONENT.search(closed)
    if found is None or not closed[: found.start()].strip():
        return text, "1"
    return closed[: found.start()], found[0].translate(_SUPERSCRIPT)


def _sign(text: str) -> tuple[str, bool]:
    negative = False
    while text and (text[0] in _MINUS or text[0] in _PLUS):
        negative ^= text[0] in _MINUS
        text = text[1:].lstrip()
    return text, negative


def _numeric(text: str) -> float | None:
    """The value of a single numeric character, such as ½ or Ⅻ."""
    return unicodedata.numeric(text, None) if len(text) == 1 else None


def _mixed(text: str) -> float | None:
    """A whole part, a fraction character, or the one after the other."""
    at = [i for i, char in enumerate(text) if 0 < unicodedata.numeric(char, 0.0) < 1]
    if not at:
        return _whole(text)
    head, tail = text[: at[0]].strip(), text[at[0] + 1 :]
    if len(at) > 1 or not all(char.isspace() or char in _GROUPING for char in tail):
        return None
    whole = _whole(head) if head else 0.0
    return None if whole is None else whole + unicodedata.numeric(text[at[0]])


def _whole(text: str) -> float | None:
    text = text.strip()
    value: float | None = None
    if any(char in _HAN for char in text):
        value = _han(text)
    if value is None:
        value = _digits(text)
    return _numeric(text) if value is None else value


def _digit(char: str) -> str | None:
    value = _HAN_DIGITS.get(char)
    if value is None:
        value = unicodedata.digit(char, None)
    return None if value is None else str(value)


def _digits(text: str) -> float | None:
    """Digits of any script with one decimal point, groups set apart, and perhaps an exponent after e."""
    out: list[str] = []
    for i, char in enumerate(text):
        if char in _POINTS:
            out.append(".")
        elif (char in "eE" and out) or (i > 0 and text[i - 1] in "eE" and char in "+＋﹢-−﹣－"):
            out.append("-" if char in _MINUS else "+" if char in _PLUS else "e")
        elif (digit := _digit(char)) is not None:
            out.append(digit)
        elif not (char.isspace() or char in _GROUPING):
            return None
    try:
        return float("".join(out))
    except ValueError:
        return None


def _han(text: str) -> float | None:
    point = next((point for point in (*_HAN_POINTS, "．", ".") if point in text), None)
    whole, _, fraction = (text, "", "") if point is None else text.partition(point)
    head = (
        _han_units(whole) if any(c in _HAN_UNITS or c in _HAN_MYRIADS or c in _HAN_TENS for c in whole) else _run(whole)
    )
    tail = _run(fraction)
    if head is None or tail is None:
        return None
    try:
        return float(f"{head or 0}.{tail or 0}")
    except (ValueError, OverflowError):
        return None


def _run(text: str) -> str | None:
    """The digits of a text that is nothing else but space, as ASCII."""
    digits = [_digit(char) for char in text if not char.isspace()]
    return None if None in digits else "".join(filter(None, digits))


def _han_units(text: str) -> int | None:
    """A number written with units: 三千二百万 is (3·1000 + 2·100)·10,000."""
    total = section = digit = 0
    for char in text:
        if char in _HAN_MYRIADS:
            total += (section + digit) * _HAN_MYRIADS[char]
            section = digit = 0
        elif char in _HAN_UNITS:
            section += (digit or 1) * _HAN_UNITS[char]
            digit = 0
        elif char in _HAN_TENS:
            section += _HAN_TENS[char]
        elif (value := _digit(char)) is not None:
            if _HAN_DIGITS.get(char) != 0:
                digit = int(value)
        elif not char.isspace():
            return None
    return total + section + digit
