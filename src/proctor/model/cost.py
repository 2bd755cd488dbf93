"""What model calls cost: prices by model, given with a call of `eval`, and the cost of a usage.

Prices travel in a context variable: they hold for the evaluation they were given to, not for the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from attrs import define, field, fields, frozen

from proctor.errors import OptionError, UsageError
from proctor.model.output import ModelUsage
from proctor.model.portable import Portable
from proctor.runtime.blocks import cost_is_limited

MILLION: Final = 1_000_000
EXAMPLE: Final = '{"provider/model": {"input": 0.25, "output": 2.0}}'


@define(kw_only=True)
class ModelCost(Portable):
    """The prices of a model, in dollars per million tokens.

    Attributes:
        input, output: tokens read and made.
        input_cache_write, input_cache_read: tokens written to and read from the provider's cache; default the price
            of other input.
    """

    input: float
    output: float
    input_cache_write: float | None = None
    input_cache_read: float | None = None

    def __attrs_post_init__(self) -> None:
        for attribute in fields(type(self)):
            price = getattr(self, attribute.name)
            number = isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < math.inf
            if not number and not (price is None and attribute.default is None):
                raise OptionError(f"a model's price ({attribute.name}) must be a number of at least 0, not {price!r}")

    def of(self, usage: ModelUsage) -> float:
        """What a usage costs, in dollars."""
        written = self.input if self.input_cache_write is None else self.input_cache_write
        read = self.input if self.input_cache_read is None else self.input_cache_read
        total = usage.input_tokens * self.input + usage.output_tokens * self.output
        total += (usage.input_tokens_cache_write or 0) * written + (usage.input_tokens_cache_read or 0) * read
        return total / MILLION


Prices = Mapping[str, ModelCost]


@frozen
class PriceList:
    """The prices that hold for some code.

    Attributes:
        needed_by: the option because of which every model must have one, "" when none is set.
    """

    prices: Prices = field(factory=dict)
    needed_by: str = ""


_NONE: Final = PriceList()
_list: Final[ContextVar[PriceList]] = ContextVar("proctor_prices", default=_NONE)


@contextmanager
def model_prices(prices: Prices, *, needed_by: str = "") -> Iterator[None]:
    """The prices that hold within the block, besides those of the blocks around it.

    Args:
        needed_by: the option because of which calls of models without a price are refused.
    """
    around = _list.get()
    token = _list.set(PriceList({**around.prices, **prices}, needed_by or around.needed_by))
    try:
        yield
    finally:
        _list.reset(token)


def price_of(model: str, prices: Prices | None = None) -> ModelCost | None:
    """The price of a model, by its full name or by that without the provider; None when it is unknown.

    Args:
        prices: to look in; default those that hold here.
    """
    known = _list.get().prices if prices is None else prices
    return known.get(model) or known.get(model.partition("/")[2])


def check_priced(model: str, *, reported: bool) -> None:
    """Before a call is sent: a cost that is limited must be known.

    Args:
        reported: the provider says itself what its calls cost.

    Raises:
        UsageError: a limit of cost holds here, and the model has no price.
    """
    needed_by = _list.get().needed_by or ("cost_limit" if cost_is_limited() else "")
    if needed_by and not reported and price_of(model) is None:
        raise unpriced(model, needed_by)


def unpriced(model: str, needed_by: str) -> UsageError:
    """The error for a model without a price where one is needed."""
    return UsageError(
        f"{needed_by} is set, but the price of {model} is not known: give it with model_cost_config "
        f"(--model-cost-config), as in {EXAMPLE.replace('provider/model', model)}, in dollars per million tokens"
    )


def read_prices(given: str | Path | Mapping[str, Any]) -> dict[str, ModelCost]:
    """Prices from a mapping, or from a JSON file that holds one.

    Args:
        given: by model, each a `ModelCost` or a mapping with its fields.

    Raises:
        OptionError: it cannot be read; the text says where.
    """
    where = "model_cost_config"
    if isinstance(given, str | Path):
        where = f"model_cost_config {given}"
        given = _loaded(Path(given), where)
    if not isinstance(given, Mapping):
        raise OptionError(f"{where} must be a mapping of models to prices, such as {EXAMPLE}, not {given!r}")
    return {str(model): _price(cost, f"{where}: {model}") for model, cost in given.items()}


def _loaded(path: Path, where: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{where} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise OptionError(f"{where} is no JSON ({error}); it holds prices such as {EXAMPLE}") from None


def _price(cost: Any, where: str) -> ModelCost:
    if isinstance(cost, ModelCost):
        return cost
    # A mapping, or the value object of another library that has the same fields.
    names = [attribute.name for attribute in fields(ModelCost)]
    values = dict(cost) if isinstance(cost, Mapping) else {n: getattr(cost, n) for n in names if hasattr(cost, n)}
    unknown = [str(name) for name in values if name not in names]
    if unknown or not {"input", "output"} <= set(values):
        wrong = f"unknown: {', '.join(unknown)}" if unknown else "input and output are needed"
        raise OptionError(f"{where}: prices are {', '.join(names)} in dollars per million tokens ({wrong})")
    try:
        return ModelCost(**values)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None
