"""Configurations of generation from all the places that may say something of them, and lists of values as a grid.

A field that is given a list, where it holds no list itself, stands for a run with each value: six temperatures are six
runs. Several such fields multiply; the one given last varies fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import field, fields, frozen

from proctor.errors import OptionError
from proctor.evaluation.options import with_source
from proctor.model import GenerateConfig
from proctor.model.config import public_config
from proctor.runtime.settings import Resolved

LISTS: Final = frozenset(each.name for each in fields(GenerateConfig) if str(each.type).startswith("list["))
"""Fields that hold a list themselves; a list of lists is a grid there."""


@frozen(kw_only=True)
class Configured:
    """One configuration.

    Attributes:
        config: every field resolved.
        sources: where the fields that are said came from.
        varied: the fields that differ from run to run, with this run's values as they may be shown.
    """

    config: GenerateConfig
    sources: Mapping[str, str] = field(factory=dict)
    varied: Mapping[str, Any] = field(factory=dict)


def is_grid(name: str, value: Any) -> bool:
    """Whether a value of a field stands for several runs."""
    if not isinstance(value, (list, tuple)):
        return False
    return name not in LISTS or (len(value) > 0 and all(isinstance(each, (list, tuple)) for each in value))


def checked_field(name: str, said: Resolved[Any]) -> Resolved[Any]:
    """`said`, its value (or each in its list) as `GenerateConfig` takes it.

    Raises:
        OptionError: one is refused, a list is empty or has a value twice; the text names field and source.
    """
    grid = is_grid(name, said.value)
    try:
        values = [getattr(GenerateConfig(**{name: value}), name) for value in (said.value if grid else [said.value])]
        if not values:
            raise OptionError(f"{name}: the list of values is empty; give at least one")
        twice = [value for number, value in enumerate(values) if value in values[:number]]
        if twice:
            raise OptionError(f"{name}: {twice[0]!r} is in the list twice; its runs could not be told apart")
    except OptionError as error:
        raise with_source(error, said.source) from None
    if not grid:
        return Resolved(values[0], said.source)
    return Resolved(values if len(values) > 1 else values[0], said.source)


def config_layer(config: GenerateConfig, source: str) -> dict[str, Resolved[Any]]:
    """The fields that a configuration says."""
    names = (each.name for each in fields(GenerateConfig))
    return {name: Resolved(value, source) for name in names if (value := getattr(config, name)) is not None}


def configurations(layers: Sequence[Mapping[str, Resolved[Any]]]) -> list[Configured]:
    """The configurations that layers of fields stand for: one, or one for each combination of listed values.

    Args:
        layers: lowest precedence first; the last that says a field decides on it.
    """
    last: dict[str, Resolved[Any]] = {}
    for layer in layers:
        for name, said in layer.items():
            last.pop(name, None)  # the order of the fields is that of the layer that decides
            last[name] = said
    axes = [name for name, said in last.items() if is_grid(name, said.value)]
    sources = {name: said.source for name, said in last.items()}
    found = []
    for chosen in itertools.product(*(last[name].value for name in axes)):
        values = {name: said.value for name, said in last.items()} | dict(zip(axes, chosen, strict=True))
        config = GenerateConfig(**values)
        shown = public_config(config)
        varied = {name: getattr(shown, name) for name in axes}
        found.append(Configured(config=config, sources=sources, varied=varied))
    return found
