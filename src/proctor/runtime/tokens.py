"""What a token limit counts, and how one is written.

A limit counts all tokens, the output alone, or what a formula over ``input`` and ``output`` says of a usage. The
formula is arithmetic and nothing else: it is taken apart as syntax, never evaluated as Python.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from attrs import field, frozen

from proctor.errors import OptionError

SIZES: Final = MappingProxyType({"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000})
WRITTEN: Final = re.compile(r"\s*(?:(?P<type>.*):)?\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<size>[kmb]?)\s*", re.I)
EXAMPLES: Final = "such as 500000, 500k, output:100k or (input*0.1)+output:1m"


class Usage(Protocol):
    """What one call of a model used, or several."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_cache_write: int | None
    input_tokens_cache_read: int | None
    total_cost: float | None


Metering = Callable[[Usage], int]


def metering(type: str) -> Metering:
    """The function that counts tokens as a token limit's type says.

    Args:
        type: ``all``, ``output``, or a formula over ``input`` (the whole prompt, cached tokens included) and
            ``output`` (reasoning included) with numbers, + - * / and brackets; its value is rounded down.

    Raises:
        OptionError: the type is none of these.
    """
    if type == "all":
        return lambda usage: usage.total_tokens
    if type == "output":
        return lambda usage: usage.output_tokens
    formula = _compiled(type)

    def count(usage: Usage) -> int:
        prompt = usage.input_tokens + (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        try:
            value = formula({"input": prompt, "output": usage.output_tokens})
        except (ZeroDivisionError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise OptionError(f"token limit: {type} has no value for {prompt} input and {usage.output_tokens} output")
        return math.floor(value)

    return count


def _check_tokens(limit: Any, attribute: Any, tokens: Any) -> None:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise OptionError(f"token limit: tokens must be a whole number of at least 0, not {tokens!r}")


def _check_type(limit: Any, attribute: Any, type: Any) -> None:
    metering(type)


@frozen
class TokenLimit:
    """A number of tokens, and which tokens it counts (`metering`).

    Raises:
        OptionError: the number is negative or not whole, or the type is unknown.
    """

    tokens: int = field(validator=_check_tokens)
    type: str = field(default="all", validator=_check_type)

    def __str__(self) -> str:
        return str(self.tokens) if self.type == "all" else f"{self.type}:{self.tokens}"


def parse_token_limit(text: str) -> int | TokenLimit:
    """A limit as it is written: ``[type:]number[k|m|b]``; a plain number where all tokens are counted.

    Raises:
        OptionError: it cannot be read.
    """
    match = WRITTEN.fullmatch(text)
    number = float(match["number"]) * SIZES[match["size"].lower()] if match is not None else math.nan
    if match is None or number != int(number):
        raise OptionError(f"a token limit is written {EXAMPLES}, not {text!r}")
    type = (match["type"] or "all").strip()
    return plain_limit(TokenLimit(int(number), type.lower() if type.lower() in {"all", "output"} else type))


def plain_limit(limit: int | str | TokenLimit) -> int | TokenLimit:
    """The simplest form: a number where all tokens are counted.

    Raises:
        OptionError: a text cannot be read.
    """
    if isinstance(limit, str):
        return parse_token_limit(limit)
    return limit.tokens if isinstance(limit, TokenLimit) and limit.type == "all" else limit


Formula = Callable[[Mapping[str, float]], float]
_PAIRS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = MappingProxyType(
    {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
)
_SIGNS: Final[Mapping[type[ast.unaryop], Callable[[float], float]]] = MappingProxyType(
    {ast.UAdd: operator.pos, ast.USub: operator.neg}
)


def _compiled(text: str) -> Formula:
    try:
        return _built(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        raise OptionError(
            f"token limit: a type is all, output or a formula such as (input*0.1)+output, not {text!r}"
        ) from None


def _built(node: ast.expr) -> Formula:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _PAIRS:
            join, first, second = _PAIRS[type(op)], _built(left), _built(right)
            return lambda names: join(first(names), second(names))
        case ast.UnaryOp(op, operand) if type(op) in _SIGNS:
            sign, value = _SIGNS[type(op)], _built(operand)
            return lambda names: sign(value(names))
        case ast.Constant(bool()):
            raise ValueError
        case ast.Constant(int() | float() as number) if math.isfinite(constant := float(number)):
            return lambda _: constant
        case ast.Name(("input" | "output") as name):
            return lambda names: names[name]
        case _:
            raise ValueError
